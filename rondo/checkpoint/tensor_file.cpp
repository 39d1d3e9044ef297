#include "rondo/checkpoint/tensor_file.h"

#include <torch/types.h>

#include <array>
#include <cstring>
#include <map>
#include <memory>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

constexpr std::array<std::pair<Dtype, at::ScalarType>, 16> dtypes{{
    {Dtype::boolean, at::kBool},
    {Dtype::uint8, at::kByte},
    {Dtype::int8, at::kChar},
    {Dtype::float8_e4m3, at::kFloat8_e4m3fn},
    {Dtype::float8_e5m2, at::kFloat8_e5m2},
    {Dtype::int16, at::kShort},
    {Dtype::uint16, at::kUInt16},
    {Dtype::float16, at::kHalf},
    {Dtype::bfloat16, at::kBFloat16},
    {Dtype::int32, at::kInt},
    {Dtype::uint32, at::kUInt32},
    {Dtype::float32, at::kFloat},
    {Dtype::int64, at::kLong},
    {Dtype::uint64, at::kUInt64},
    {Dtype::float64, at::kDouble},
    {Dtype::complex64, at::kComplexFloat},
}};

Dtype to_dtype(const TensorSource& source) {
  for (const auto& [dtype, scalar_type] : dtypes) {
    if (scalar_type == source.dtype) return dtype;
  }
  throw UsageError(str("tensor '", source.name, "' has dtype ", c10::toString(source.dtype),
                       ", which safetensors files cannot hold"));
}

at::ScalarType to_scalar_type(Dtype dtype) {
  for (const auto& [ours, scalar_type] : dtypes) {
    if (ours == dtype) return scalar_type;
  }
  return at::kByte;
}

// A metadata entry "shared:B" -> "A" says that B is the tensor stored as A.
constexpr std::string_view shared_prefix = "shared:";

struct Layout {
  std::vector<TensorSpec> specs;
  std::map<std::string, std::string> metadata;
  std::map<std::string, std::size_t> numbers;  // of the sources by name, each tensor once
};

Layout lay_out(const TensorSources& sources) {
  Layout layout;
  std::map<const void*, std::string> first_names;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const TensorSource& source = sources[i];
    const auto [first, is_new] = first_names.emplace(source.identity, source.name);
    if (!is_new) {
      layout.metadata[str(shared_prefix, source.name)] = first->second;
      continue;
    }
    layout.specs.push_back({source.name, to_dtype(source), source.sizes});
    layout.numbers[source.name] = i;
  }
  return layout;
}

FileRecord write_all(SafetensorsWriter writer, const Layout& layout, const TensorSources& sources) {
  for (const TensorEntry& entry : std::vector(writer.order())) {
    const at::Tensor tensor =
        sources[layout.numbers.at(entry.name)].make().detach().to(at::kCPU).contiguous();
    writer.write(entry.name, {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()});
  }
  return writer.finish();
}

at::Tensor view_of(const std::shared_ptr<SafetensorsFile>& file, const TensorEntry& entry) {
  const at::ScalarType scalar_type = to_scalar_type(entry.dtype);
  const std::span<const std::byte> data = file->data(entry);
  // Files of others need not be aligned.
  if (data.empty() || reinterpret_cast<std::uintptr_t>(data.data()) % element_size(entry.dtype) != 0) {
    at::Tensor copy = at::empty(entry.shape, at::TensorOptions(scalar_type));
    if (!data.empty()) std::memcpy(copy.mutable_data_ptr(), data.data(), data.size());
    return copy;
  }
  return at::from_blob(
      const_cast<std::byte*>(data.data()), entry.shape, [file](void*) {}, at::TensorOptions(scalar_type));
}

}  // namespace

TensorSource source_of(const NamedTensor& tensor) {
  return {tensor.name, tensor.tensor.scalar_type(), tensor.tensor.sizes().vec(),
          tensor.tensor.unsafeGetTensorImpl(), [value = tensor.tensor] { return value; }};
}

TensorSources sources_of(const NamedTensors& tensors) {
  TensorSources sources;
  for (const NamedTensor& tensor : tensors) sources.push_back(source_of(tensor));
  return sources;
}

std::vector<std::size_t> order_in_file(const TensorSources& sources) {
  const Layout layout = lay_out(sources);
  std::vector<std::size_t> order;
  for (const TensorEntry& entry : safetensors_order(layout.specs))
    order.push_back(layout.numbers.at(entry.name));
  return order;
}

void write_tensors(CheckpointWriter& checkpoint, const std::string& file_name, const TensorSources& tensors) {
  const Layout layout = lay_out(tensors);
  checkpoint.add(
      write_all(checkpoint.open_tensors(file_name, layout.specs, layout.metadata), layout, tensors));
}

void write_tensors(const std::filesystem::path& path, const NamedTensors& tensors) {
  const TensorSources sources = sources_of(tensors);
  const Layout layout = lay_out(sources);
  write_all(SafetensorsWriter(path, layout.specs, layout.metadata), layout, sources);
}

NamedTensors map_tensors(const std::filesystem::path& path) {
  const auto file = std::make_shared<SafetensorsFile>(path);
  NamedTensors result;
  std::map<std::string, at::Tensor> by_name;
  for (const TensorEntry& entry : file->tensors()) {
    result.push_back({entry.name, view_of(file, entry)});
    by_name[entry.name] = result.back().tensor;
  }
  for (const auto& [key, name] : file->metadata()) {
    if (!key.starts_with(shared_prefix)) continue;
    const auto found = by_name.find(name);
    const std::string alias = key.substr(shared_prefix.size());
    if (found == by_name.end() || by_name.contains(alias)) {
      throw DataError(str(path.string(), ": metadata says that '", alias, "' is stored as '", name,
                          "', which ",
                          found == by_name.end() ? "is not there" : "contradicts its own entry"));
    }
    result.push_back({alias, found->second});
  }
  return result;
}

}  // namespace rondo
