#include "rondo/checkpoint/incremental.h"

#include <torch/types.h>

#include <algorithm>
#include <span>

#include "rondo/base/error.h"
#include "rondo/checkpoint/stored_tensor.h"
#include "rondo/checkpoint/tensor_file.h"

namespace rondo {
namespace {

// Smaller tensors share a file, which is written every time: a file of its own costs as much as so many
// bytes.
constexpr std::uint64_t kAlone = std::uint64_t{64} << 10;

std::span<const std::byte> elements_of(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

}  // namespace

IncrementalWriter::IncrementalWriter(CheckpointWriter& writer, const std::filesystem::path& root)
    : writer_(writer) {
  const auto newest = newest_checkpoint(root);
  if (!newest) return;
  try {
    for (FileRecord& file : read_manifest(newest->path).files) {
      if (file.tensors.size() != 1 || file.header_checksum.empty()) continue;
      const std::string kind = file.name.substr(0, file.name.find_first_of("-."));
      const std::string tensor = file.tensors.front().name;
      const std::filesystem::path path = newest->path / file.name;
      older_.insert_or_assign({kind, tensor}, std::pair{path, std::move(file)});
    }
  } catch (const DataError&) {
    older_.clear();
  }
}

bool IncrementalWriter::link(const std::string& kind, const TensorSpec& spec, const std::string& file_name,
                             const std::string& checksum) {
  const auto found = older_.find({kind, spec.name});
  if (found == older_.end()) return false;
  const auto& [path, record] = found->second;
  // The header has name, dtype and shape.
  if (record.tensors.front().checksum != checksum ||
      record.header_checksum != checksum_hex(as_bytes(safetensors_header({spec}))))
    return false;
  FileRecord linked = record;
  linked.name = file_name;
  return writer_.link(path, std::move(linked));
}

void IncrementalWriter::write(const std::string& kind, const TensorSources& sources) {
  const TensorLayout layout = lay_out(sources);
  std::map<std::string, const TensorSpec*> specs;
  for (const TensorSpec& spec : layout.specs) specs[spec.name] = &spec;
  const std::vector<TensorEntry> order = safetensors_order(layout.specs);
  const auto is_alone = [](const TensorEntry& entry) { return entry.bytes() >= kAlone; };
  const int files = 1 + static_cast<int>(std::count_if(order.begin(), order.end(), is_alone));

  int number = 0;  // the first file is of the small ones and of further names
  std::map<std::string, at::Tensor> small;
  std::vector<TensorSpec> small_specs;
  for (const TensorEntry& entry : order) {
    const TensorSpec& spec = *specs.at(entry.name);
    const at::Tensor tensor =
        sources[layout.numbers.at(entry.name)].make().detach().to(at::kCPU).contiguous();
    if (!is_alone(entry)) {
      small.emplace(entry.name, tensor);
      small_specs.push_back(spec);
      continue;
    }
    const std::string file_name = part_name(kind, ++number, files);
    if (older_.contains({kind, spec.name}) && link(kind, spec, file_name, checksum_hex(elements_of(tensor))))
      continue;
    SafetensorsWriter file = writer_.open_tensors(file_name, {spec});
    file.write(spec.name, elements_of(tensor));
    writer_.finish(file);
  }
  SafetensorsWriter file = writer_.open_tensors(part_name(kind, 0, files), small_specs, layout.metadata);
  for (const TensorEntry& entry : std::vector(file.order()))
    file.write(entry.name, elements_of(small.at(entry.name)));
  writer_.finish(file);
}

}  // namespace rondo
