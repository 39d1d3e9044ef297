#include "rondo/checkpoint/weights.h"

#include <torch/serialize.h>
#include <torch/types.h>

#include <map>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/checkpoint/tensor_file.h"

namespace rondo {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view zip_magic = "PK\x03\x04";  // libtorch's archives are zip files

bool is_archive(const fs::path& path) {
  const MappedFile file(path);
  const std::span<const std::byte> bytes = file.bytes();
  return bytes.size() >= zip_magic.size() &&
         std::equal(zip_magic.begin(), zip_magic.end(), reinterpret_cast<const char*>(bytes.data()));
}

void collect(torch::serialize::InputArchive& archive, const std::string& prefix, NamedTensors& tensors) {
  for (const std::string& key : archive.keys()) {
    torch::serialize::InputArchive nested;
    at::Tensor tensor;
    if (archive.try_read(key, nested)) {
      collect(nested, prefix + key + ".", tensors);
    } else if (archive.try_read(key, tensor) && tensor.defined()) {
      tensors.push_back({prefix + key, tensor.detach()});
    }
  }
}

NamedTensors read_module_archive(const fs::path& path) {
  torch::serialize::InputArchive archive;
  archive.load_from(path.string(), c10::Device(c10::kCPU));
  NamedTensors tensors;
  collect(archive, "", tensors);
  return tensors;
}

// Python's torch.save of a dict. libtorch's reader knows tensors and plain containers and runs no code of the
// file.
NamedTensors read_pickled_dict(const fs::path& path) {
  const MappedFile file(path);
  const char* begin = reinterpret_cast<const char*>(file.bytes().data());
  const c10::IValue value = torch::pickle_load(std::vector<char>(begin, begin + file.bytes().size()));
  NamedTensors tensors;
  for (const auto& entry : value.toGenericDict()) {
    tensors.push_back({entry.key().toStringRef(), entry.value().toTensor().detach()});
  }
  return tensors;
}

NamedTensors read_archive(const fs::path& path) {
  NamedTensors tensors;
  std::string reason;
  for (const auto& read : {read_module_archive, read_pickled_dict}) {
    try {
      tensors = read(path);
      if (!tensors.empty()) return tensors;
      reason = "it holds no tensors";
    } catch (const c10::Error& e) {
      if (reason.empty()) reason = e.what_without_backtrace();
    }
  }
  throw DataError(
      str(path.string(),
          ": neither a module saved by torch::save or torch.jit.save nor a plain dict of "
          "tensors (in Python: torch.save(dict(model.state_dict()), FILE), or save_file of safetensors): ",
          reason));
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
  if (fs::is_directory(path)) return map_tensors(find_checkpoint(path) / "model.safetensors");
  return is_archive(path) ? read_archive(path) : map_tensors(path);
}

void load_weights(const fs::path& path, const NamedTensors& model) {
  prepare_assign(model, read_weights(path), path.string())();
}

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
  try {
    root.archive.save_to(path.string());
  } catch (const c10::Error& e) {
    throw Error(str("cannot write ", path.string(), ": ", e.what_without_backtrace()));
  }
}

}  // namespace rondo
