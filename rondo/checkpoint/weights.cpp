#include "rondo/checkpoint/weights.h"

#include <caffe2/serialize/inline_container.h>
#include <torch/serialize.h>
#include <torch/types.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/printable.h"
#include "rondo/base/text.h"
#include "rondo/checkpoint/pickled_tensors.h"
#include "rondo/checkpoint/pretrained.h"
#include "rondo/checkpoint/tensor_file.h"
#include "rondo/format/checkpoint_directory.h"
#include "rondo/format/checkpoint_files.h"

namespace rondo {

namespace fs = std::filesystem;
namespace {

constexpr std::string_view zip_magic = "PK\x03\x04";  // libtorch's archives are zip files
// Number after the pickle's protocol at the start of files written by torch.save before PyTorch 1.6.
constexpr std::string_view old_torch_magic = "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";

// Returns the first bytes of a file.
std::string beginning_of(const fs::path& path) {
  const MappedFile file(path);
  const std::span<const std::byte> bytes = file.bytes();
  return {reinterpret_cast<const char*>(bytes.data()), std::min<std::size_t>(bytes.size(), 16)};
}

// Throws DataError for a pickle outside an archive; restoring its objects would need Python.
void refuse_bare_pickle(const fs::path& path, std::string_view beginning) {
  if (beginning.size() < 2 || beginning[0] != '\x80' || beginning[1] < 2 || beginning[1] > 5) return;
  const bool is_old = beginning.substr(2).starts_with(old_torch_magic);
  throw DataError(str(path.string(),
                      is_old ? " is in the format that torch.save wrote before PyTorch 1.6"
                             : " is a pickle of Python's, not a file of torch.save",
                      "; save its tensors again in Python: torch.save(torch.load('", path.filename().string(),
                      "'), 'new.pt')"));
}

// Reads a record of the archive. PyTorch stores records uncompressed, so none can be larger than the file.
// Refuses compressed records, which could expand to fill the memory.
PickledRecord read_record(caffe2::serialize::PyTorchStreamReader& archive, const std::string& name,
                          std::size_t file_bytes) {
  if (!archive.hasRecord(name)) throw DataError(str("it has no record ", printable(name)));
  if (archive.getRecordSize(name) > file_bytes)
    throw DataError(str("record ", printable(name), " is compressed, or its size exceeds that of the file"));
  auto [data, size] = archive.getRecord(name);
  const auto owner = std::make_shared<at::DataPtr>(std::move(data));
  return {{static_cast<const std::byte*>(owner->get()), size}, owner};
}

// Parses an archive as data: runs neither TorchScript code nor functions of a pickle.
NamedTensors read_archive(const fs::path& path) {
  const std::string file = path.string();
  NamedTensors tensors;
  try {
    caffe2::serialize::PyTorchStreamReader archive(file);
    const std::size_t file_bytes = fs::file_size(path);
    if (archive.hasRecord("byteorder")) {
      const PickledRecord order = read_record(archive, "byteorder", file_bytes);
      if (std::string_view(reinterpret_cast<const char*>(order.bytes.data()), order.bytes.size()) != "little")
        throw DataError("its bytes are not in little-endian order");
    }
    const PickledRecord pickle = read_record(archive, "data.pkl", file_bytes);
    tensors = read_pickled_tensors(
        {reinterpret_cast<const char*>(pickle.bytes.data()), pickle.bytes.size()},
        [&](const std::string& key) { return read_record(archive, "data/" + key, file_bytes); }, "it");
    if (tensors.empty()) throw DataError("it holds no tensors");
  } catch (const std::exception& e) {
    const auto* of_libtorch = dynamic_cast<const c10::Error*>(&e);
    throw DataError(
        str(file,
            ": neither a module saved by torch::save or torch.jit.save nor a dict of tensors saved by "
            "Python's torch.save: ",
            printable(of_libtorch != nullptr ? of_libtorch->what_without_backtrace() : e.what(), 400)));
  }
  return tensors;
}

// A module of an archive being written, with its submodules.
struct ArchiveNode {
  torch::serialize::OutputArchive archive;
  std::map<std::string, ArchiveNode> children;

  void finish(torch::serialize::OutputArchive& parent, const std::string& name) {
    for (auto& [key, child] : children) child.finish(archive, key);
    parent.write(name, archive);
  }
};

}  // namespace

NamedTensors read_weights(const fs::path& path) {
  if (!fs::exists(path)) throw DataError(str("no weights: ", path.string(), " does not exist"));
  if (fs::is_directory(path)) {
    const bool is_checkpoint = fs::exists(path / Manifest::file_name);
    if (const auto weights = weights_in_folder(path); weights && !is_checkpoint)
      return read_safetensors(*weights);
    return full_tensors(stored_tensors(open_checkpoint_files(path), "model"));
  }
  const std::string beginning = beginning_of(path);
  refuse_bare_pickle(path, beginning);
  if (!beginning.starts_with(zip_magic)) return read_safetensors(path);
  require_intact_if_of_checkpoint(path);
  return read_archive(path);
}

void load_weights(const fs::path& path, const NamedTensors& model) { load_partial_weights(path, model, {}); }

void write_archive(const fs::path& path, const NamedTensors& tensors) {
  ArchiveNode root;
  for (const NamedTensor& t : tensors) {
    ArchiveNode* node = &root;
    std::vector<std::string> parts = split(t.name, '.');
    const std::string last = parts.empty() ? t.name : parts.back();
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) node = &node->children[parts[i]];
    node->archive.write(last, t.tensor);
  }
  for (auto& [key, child] : root.children) child.finish(root.archive, key);
  OutputFile file(path, OutputFile::Mode::create);
  root.archive.save_to([&](const void* data, std::size_t size) {
    file.write(std::span(static_cast<const std::byte*>(data), size));
    return size;
  });
  file.sync();
  file.close();
}

namespace {

constexpr const char* kWeights = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

bool is_index(const fs::path& path) { return path.string().ends_with(".index.json"); }

// Returns the names of the tensors in each part. A part is a file in the index's folder.
std::map<std::string, std::set<std::string>> parts_of(const fs::path& index) {
  const std::string source = index.string();
  const auto document = read_json_file(index);
  const auto& map =
      json_object(json_member(document, "weight_map", source), json_place(source, "weight_map"));
  std::map<std::string, std::set<std::string>> parts;
  for (const auto& [tensor, file] : map.items()) {
    const std::string name = json_text(file, str(source, ": the file of tensor '", printable(tensor), "'"));
    if (name.empty() || name != fs::path(name).filename())
      throw DataError(str(source, ": tensor '", printable(tensor), "' is in '", printable(name),
                          "', expected a file in the folder of the index"));
    parts[name].insert(tensor);
  }
  if (parts.empty()) throw DataError(str(source, ": it lists no tensors"));
  return parts;
}

}  // namespace

std::optional<fs::path> weights_in_folder(const fs::path& folder) {
  for (const char* name : {kWeights, kIndex}) {
    if (fs::exists(folder / name)) return folder / name;
  }
  return {};
}

NamedTensors read_safetensors(const fs::path& path) {
  if (!is_index(path)) {
    require_intact_if_of_checkpoint(path);
    return map_tensors(path);
  }
  NamedTensors all;
  for (const auto& [name, wanted] : parts_of(path)) {
    const fs::path part = path.parent_path() / name;
    if (!fs::exists(part))
      throw DataError(str(path.string(), " lists ", printable(name), ", which is not beside it"));
    std::set<std::string> missing = wanted;
    for (NamedTensor& tensor : map_tensors(part)) {
      if (missing.erase(tensor.name) > 0) all.push_back(std::move(tensor));
    }
    if (!missing.empty())
      throw DataError(str(part.string(), " has no tensor '", printable(*missing.begin()),
                          "', which the index says is in it"));
  }
  return all;
}

namespace {

std::string describe(at::ScalarType dtype, at::IntArrayRef sizes) {
  return str("dtype ", c10::toString(dtype), " and shape [", join(sizes, ", "), "]");
}

std::map<std::string_view, const StoredTensor*> by_name(const StoredTensors& tensors) {
  std::map<std::string_view, const StoredTensor*> index;
  for (const StoredTensor& t : tensors) index[t.name] = &t;
  return index;
}

// Finds the source of each tensor of `target`; none for a shared tensor that already has one.
class Matcher {
 public:
  Matcher(const StoredTensors& source, const std::string& what) : available_(by_name(source)), what_(what) {}

  // Returns the source for `to`; null if the tensor already has one under another name.
  const StoredTensor* match(const NamedTensor& wanted, const Shard& to) {
    const auto found = available_.find(wanted.name);
    const auto shared = shared_.find(wanted.tensor.unsafeGetTensorImpl());
    if (found == available_.end()) {
      if (shared != shared_.end()) return nullptr;
      fail(wanted.name, "is missing in it");
    }
    const StoredTensor& given = *found->second;
    const at::ScalarType dtype = to.local.scalar_type();
    if (given.sizes != to.global_sizes || given.dtype != dtype) {
      fail(wanted.name, str("has ", describe(given.dtype, given.sizes), " in it, and ",
                            describe(dtype, to.global_sizes), " in the model"));
    }
    used_.insert(wanted.name);
    if (shared == shared_.end()) {
      shared_.emplace(wanted.tensor.unsafeGetTensorImpl(), &given);
      return &given;
    }
    if (!given.is_same(*shared->second) && !at::equal(given.full(), shared->second->full())) {
      fail(wanted.name, "differs in it from another tensor, although the model shares the two");
    }
    return nullptr;
  }

  void require_all_used(const StoredTensors& source) const {
    for (const StoredTensor& t : source) {
      if (!used_.contains(t.name)) fail(t.name, "is in it and not in the model");
    }
  }

 private:
  [[noreturn]] void fail(const std::string& name, const std::string& how) const {
    throw DataError(str(what_, " is of another model: tensor '", name, "' ", how));
  }

  std::map<std::string_view, const StoredTensor*> available_;
  std::map<const c10::TensorImpl*, const StoredTensor*>
      shared_;  // tensors of the target found so far, with their sources
  std::set<std::string> used_;
  const std::string& what_;
};

}  // namespace

std::function<void()> prepare_assign(const NamedTensors& target, const NamedTensors& source,
                                     const std::string& what, const std::vector<Shard>& shards) {
  return prepare_assign(target, stored_tensors(source), what, shards);
}

std::function<void()> prepare_assign(const NamedTensors& target, const StoredTensors& source,
                                     const std::string& what, const std::vector<Shard>& shards) {
  Matcher matcher(source, what);
  // A shard has one name for a tensor that the model has under several names.
  const auto shared =
      shared_names(target, [&](const std::string& name) { return find_shard(shards, name) != nullptr; });
  std::vector<std::pair<Shard, StoredTensor>> copies;  // to, from
  for (const NamedTensor& t : target) {
    const auto further = shared.find(t.name);
    const Shard* const shard = find_shard(shards, further != shared.end() ? further->second : t.name);
    const Shard to = shard != nullptr ? *shard : full_shard(t.name, t.tensor);
    if (const StoredTensor* const given = matcher.match(t, to)) copies.emplace_back(to, *given);
  }
  matcher.require_all_used(source);
  return [copies = std::move(copies)] {
    const at::NoGradGuard no_gradient;
    for (const auto& [to, from] : copies) to.local.copy_(from.read(to));
  };
}

}  // namespace rondo
