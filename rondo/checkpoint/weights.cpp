#include "rondo/checkpoint/weights.h"

#include <caffe2/serialize/inline_container.h>
#include <torch/serialize.h>
#include <torch/types.h>

#include <algorithm>
#include <map>

#include "rondo/base/error.h"
#include "rondo/base/printable.h"
#include "rondo/base/text.h"
#include "rondo/checkpoint/indexed_weights.h"
#include "rondo/checkpoint/partial_weights.h"
#include "rondo/checkpoint/pickled_tensors.h"
#include "rondo/checkpoint/stored_tensor.h"
#include "rondo/format/checkpoint_choice.h"
#include "rondo/format/checkpoint_directory.h"

namespace rondo {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view zip_magic = "PK\x03\x04";  // libtorch's archives are zip files
// Behind the pickle's protocol: the number that torch.save began files with before PyTorch 1.6.
constexpr std::string_view old_torch_magic = "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";

// The first bytes of a file.
std::string beginning_of(const fs::path& path) {
  const MappedFile file(path);
  const std::span<const std::byte> bytes = file.bytes();
  return {reinterpret_cast<const char*>(bytes.data()), std::min<std::size_t>(bytes.size(), 16)};
}

// Throws DataError for a pickle that is not inside an archive; its objects would need Python.
void refuse_bare_pickle(const fs::path& path, std::string_view beginning) {
  if (beginning.size() < 2 || beginning[0] != '\x80' || beginning[1] < 2 || beginning[1] > 5) return;
  const bool is_old = beginning.substr(2).starts_with(old_torch_magic);
  throw DataError(str(path.string(),
                      is_old ? " is in the format that torch.save wrote before PyTorch 1.6"
                             : " is a pickle of Python's, not a file of torch.save",
                      "; save its tensors anew in Python: torch.save(torch.load('", path.filename().string(),
                      "'), 'new.pt')"));
}

// A record of the archive. PyTorch stores records as they are, so none can be larger than the file: a few
// bytes that unpack to a full memory are refused.
PickledRecord read_record(caffe2::serialize::PyTorchStreamReader& archive, const std::string& name,
                          std::size_t file_bytes) {
  if (!archive.hasRecord(name)) throw DataError(str("it has no record ", printable(name)));
  if (archive.getRecordSize(name) > file_bytes)
    throw DataError(str("record ", printable(name), " is compressed, or says to be larger than the file"));
  auto [data, size] = archive.getRecord(name);
  const auto owner = std::make_shared<at::DataPtr>(std::move(data));
  return {{static_cast<const std::byte*>(owner->get()), size}, owner};
}

// As data: neither TorchScript's code nor a pickle's functions are run.
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

// The modules of an archive being written.
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

}  // namespace rondo
