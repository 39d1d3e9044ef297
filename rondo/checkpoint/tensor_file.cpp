#include "rondo/checkpoint/tensor_file.h"

#include <torch/types.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"
#include "rondo/nn/shard.h"

namespace rondo {

namespace fs = std::filesystem;
namespace {

constexpr std::string_view kEnding = ".safetensors";

// Returns the manifest's files of one kind, in order. The file names determine which files must exist.
std::vector<std::string> files_of(const CheckpointFiles& read, const std::string& kind) {
  const fs::path& checkpoint = read.path();
  std::vector<std::string> files;
  for (const FileRecord& file : read.manifest().files) {
    if (file.name == part_name(kind, 0, 1)) return {file.name};
    if (file.name.starts_with(kind + "-") && file.name.ends_with(kEnding)) files.push_back(file.name);
  }
  std::sort(files.begin(), files.end());
  const int count = files.empty() ? 0 : std::atoi(files.back().c_str() + files.back().rfind('-') + 1);
  for (int number = 0; number < count; ++number) {
    const std::string wanted = part_name(kind, number, count);
    if (!std::binary_search(files.begin(), files.end(), wanted))
      throw DataError(str(checkpoint.string(), ": there is ", files.back(), " but no ", wanted));
  }
  if (files.size() != static_cast<std::size_t>(count))
    throw DataError(str(checkpoint.string(), ": ", files.size(), " files of '", kind, "' where the last is ",
                        files.back()));
  return files;
}

Box box_of_all(const std::vector<std::int64_t>& sizes) {
  return {std::vector<std::int64_t>(sizes.size(), 0), sizes};
}

void require_complete(const fs::path& checkpoint, const StoredTensor& tensor) {
  std::vector<Box> left{box_of_all(tensor.sizes)};
  if (left.front().elements() == 0) return;
  for (const Shard& piece : tensor.pieces) left = beside(left, piece);
  std::int64_t missing = 0;
  for (const Box& box : left) missing += box.elements();
  if (missing == 0) return;
  throw DataError(str(checkpoint.string(), ": tensor '", tensor.name, "' lacks ", missing, " of its ",
                      box_of_all(tensor.sizes).elements(), " elements, the first at [",
                      join(left.front().offsets, ", "), "]"));
}

// Adds a piece to its tensor.
void add_piece(const fs::path& file, StoredTensor& tensor, const Shard& piece) {
  if (tensor.pieces.empty()) {
    tensor.name = piece.name;
    tensor.dtype = piece.local.scalar_type();
    tensor.sizes = piece.global_sizes;
  } else if (tensor.sizes != piece.global_sizes || tensor.dtype != piece.local.scalar_type()) {
    throw DataError(str(file.string(), ": a piece of tensor '", piece.name, "' is of ",
                        c10::toString(piece.local.scalar_type()), "[", join(piece.global_sizes, ", "),
                        "], others are of ", c10::toString(tensor.dtype), "[", join(tensor.sizes, ", "),
                        "]"));
  }
  tensor.pieces.push_back(piece);
}

}  // namespace

at::Tensor StoredTensor::read(const Shard& address) const {
  const Box all = box_of_all(sizes);
  for (const Shard& piece : pieces) {
    if (same_address(piece, address)) return piece.local;
    if (!piece.within && Box{piece.offsets, piece.sizes} == all) return cut(piece.local, address);
  }
  Shard result = address;
  result.local = at::empty(address.local_sizes(), dtype);
  std::vector<Box> left = boxes_of(result);
  for (const Shard& piece : pieces) {
    left = beside(left, piece,
                  [&](const Box& common) { view_of(result, common).copy_(view_of(piece, common)); });
  }
  return result.local;
}

at::Tensor StoredTensor::full() const {
  const Box all = box_of_all(sizes);
  return read({.name = name, .global_sizes = sizes, .offsets = all.offsets, .sizes = all.sizes});
}

bool StoredTensor::is_same(const StoredTensor& other) const {
  return pieces.size() == other.pieces.size() && !pieces.empty() &&
         pieces.front().local.is_same(other.pieces.front().local);
}

StoredTensors stored_tensors(const NamedTensors& tensors) {
  StoredTensors result;
  for (const NamedTensor& t : tensors) {
    result.push_back(
        {t.name, t.tensor.scalar_type(), t.tensor.sizes().vec(), {full_shard(t.name, t.tensor)}});
  }
  return result;
}

StoredTensors stored_tensors(const fs::path& checkpoint, const std::string& kind) {
  return stored_tensors(CheckpointFiles(checkpoint), kind);
}

StoredTensors stored_tensors(const CheckpointFiles& files, const std::string& kind) {
  const fs::path& checkpoint = files.path();
  StoredTensors result;
  std::map<std::string, std::size_t> numbers;
  std::map<std::string, std::pair<std::string, std::string>> shared;  // further name -> (name, file)
  for (const std::string& name : files_of(files, kind)) {
    FileShards file = map_shards(files.tensors(name));
    for (const Shard& piece : file.shards) {
      const auto [place, is_new] = numbers.emplace(piece.name, result.size());
      if (is_new) result.emplace_back();
      add_piece(checkpoint / name, result[place->second], piece);
    }
    for (auto& [alias, stored] : file.shared) shared.try_emplace(alias, std::move(stored), name);
  }
  for (const StoredTensor& tensor : result) require_complete(checkpoint, tensor);
  for (const auto& [alias, place] : shared) {
    const auto& [name, file] = place;
    const auto found = numbers.find(name);
    if (found == numbers.end() || numbers.contains(alias))
      throw DataError(str((checkpoint / file).string(), ": metadata says that '", alias, "' is stored as '",
                          name, "', which ",
                          found == numbers.end() ? "is not there" : "contradicts its own entry"));
    StoredTensor tensor = result[found->second];
    tensor.name = alias;
    result.push_back(std::move(tensor));
  }
  return result;
}

NamedTensors full_tensors(const StoredTensors& tensors) {
  NamedTensors result;
  std::unordered_map<const c10::TensorImpl*, std::size_t> places;  // index by the first piece
  for (const StoredTensor& tensor : tensors) {
    std::size_t place = result.size();
    if (!tensor.pieces.empty())
      place = places.emplace(tensor.pieces.front().local.unsafeGetTensorImpl(), place).first->second;
    const bool is_known = place < result.size() && tensors[place].is_same(tensor);
    result.push_back({tensor.name, is_known ? result[place].tensor : tensor.full()});
  }
  return result;
}

std::string part_name(const std::string& kind, int number, int count) {
  if (count == 1) return str(kind, kEnding);
  std::array<char, 32> digits{};
  std::snprintf(digits.data(), digits.size(), "-%05d-of-%05d", number + 1, count);
  return str(kind, digits.data(), kEnding);
}

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

Dtype to_dtype(const std::string& name, at::ScalarType wanted) {
  for (const auto& [dtype, scalar_type] : dtypes) {
    if (scalar_type == wanted) return dtype;
  }
  throw UsageError(
      str("tensor '", name, "' has dtype ", c10::toString(wanted), ", which safetensors files cannot hold"));
}

at::ScalarType to_scalar_type(Dtype dtype) {
  for (const auto& [ours, scalar_type] : dtypes) {
    if (ours == dtype) return scalar_type;
  }
  return at::kByte;
}

// Metadata prefix: an entry "shared:B" -> "A" means that B is the tensor stored as A.
constexpr std::string_view shared_prefix = "shared:";
// Metadata prefix: an entry "shard:KEY" gives the address of the file's tensor KEY in its full tensor.
constexpr std::string_view shard_prefix = "shard:";

// Returns whether the number of elements fits an int64.
bool is_possible(const std::vector<std::int64_t>& sizes) {
  std::int64_t elements = 1;
  for (const std::int64_t size : sizes) {
    if (size < 0 || __builtin_mul_overflow(elements, std::max<std::int64_t>(size, 1), &elements))
      return false;
  }
  return true;
}

// Parses the address of a shard. Throws DataError for an invalid one.
Shard parse_address(const std::string& text, const std::string& what) {
  const nlohmann::json address = parse_json_strict(text, what);
  Shard shard;
  try {
    shard = address_from_json(address);
  } catch (const DataError& error) {
    throw DataError(str(what,
                        ": expected an object with name, full, offsets, sizes and perhaps within and "
                        "blocks: ",
                        error.what()));
  }
  if (!is_possible(shard.global_sizes))
    throw DataError(str(what, ": the full shape [", join(shard.global_sizes, ", "), "] is invalid"));
  return shard;
}

bool is_full(const Shard& shard) { return !shard.within && shard.sizes == shard.global_sizes; }

void write_all(SafetensorsWriter& writer, const TensorLayout& layout, const TensorSources& sources) {
  for (const TensorEntry& entry : std::vector(writer.order())) {
    const at::Tensor tensor =
        sources[layout.numbers.at(entry.name)].make().detach().to(at::kCPU).contiguous();
    writer.write(entry.name, {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()});
  }
}

at::Tensor view_of(const std::shared_ptr<SafetensorsFile>& file, const TensorEntry& entry) {
  const at::ScalarType scalar_type = to_scalar_type(entry.dtype);
  const std::span<const std::byte> data = file->data(entry);
  // Files of other programs may be unaligned.
  if (data.empty() || reinterpret_cast<std::uintptr_t>(data.data()) % element_size(entry.dtype) != 0) {
    at::Tensor copy = at::empty(entry.shape, at::TensorOptions(scalar_type));
    if (!data.empty()) std::memcpy(copy.mutable_data_ptr(), data.data(), data.size());
    return copy;
  }
  return at::from_blob(
      const_cast<std::byte*>(data.data()), entry.shape, [file](void*) {}, at::TensorOptions(scalar_type));
}

}  // namespace

TensorLayout lay_out(const TensorSources& sources) {
  TensorLayout layout;
  std::map<const void*, std::string> first_names;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const TensorSource& source = sources[i];
    const auto [first, is_new] = first_names.emplace(source.identity, source.name);
    if (!is_new) {
      layout.metadata[str(shared_prefix, source.name)] = first->second;
      continue;
    }
    layout.specs.push_back({source.name, to_dtype(source.name, source.dtype), source.sizes});
    layout.numbers[source.name] = i;
  }
  return layout;
}

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
  const TensorLayout layout = lay_out(sources);
  std::vector<std::size_t> order;
  for (const TensorEntry& entry : safetensors_order(layout.specs))
    order.push_back(layout.numbers.at(entry.name));
  return order;
}

void write_tensors(CheckpointWriter& checkpoint, const std::string& file_name, const TensorSources& tensors) {
  const TensorLayout layout = lay_out(tensors);
  SafetensorsWriter writer = checkpoint.open_tensors(file_name, layout.specs, layout.metadata);
  write_all(writer, layout, tensors);
  checkpoint.finish(writer);
}

void write_tensors(const std::filesystem::path& path, const NamedTensors& tensors) {
  const TensorSources sources = sources_of(tensors);
  const TensorLayout layout = lay_out(sources);
  SafetensorsWriter writer(path, layout.specs, layout.metadata);
  write_all(writer, layout, sources);
  writer.finish();
}

SafetensorsWriter::Unsynced write_shards(const std::filesystem::path& path, const std::vector<Shard>& shards,
                                         const std::map<std::string, std::string>& shared) {
  std::map<std::string, std::string> metadata;
  std::map<std::string, const Shard*> by_key;
  std::vector<TensorSpec> specs;
  for (const auto& [alias, name] : shared) metadata[str(shared_prefix, alias)] = name;
  for (const Shard& shard : shards) {
    std::string key = shard.name;
    for (int number = 2; by_key.contains(key); ++number) key = str(shard.name, "#", number);
    const std::vector<std::int64_t> sizes =
        shard.within ? std::vector<std::int64_t>{shard.local.numel()} : shard.local.sizes().vec();
    specs.push_back({key, to_dtype(shard.name, shard.local.scalar_type()), sizes});
    // A tensor without an address is the full tensor named by its key.
    if (!is_full(shard) || key != shard.name)
      metadata[str(shard_prefix, key)] = address_to_json(shard).dump();
    by_key.emplace(std::move(key), &shard);
  }
  SafetensorsWriter writer(path, specs, metadata);
  for (const TensorEntry& entry : std::vector(writer.order())) {
    const at::Tensor tensor = by_key.at(entry.name)->local.detach().to(at::kCPU).contiguous();
    writer.write(entry.name, {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()});
  }
  return writer.finish_unsynced();
}

FileShards map_shards(const std::filesystem::path& path) {
  return map_shards(std::make_shared<SafetensorsFile>(path));
}

FileShards map_shards(const std::shared_ptr<SafetensorsFile>& file) {
  const std::filesystem::path& path = file->path();
  FileShards result;
  for (const TensorEntry& entry : file->tensors()) {
    const at::Tensor tensor = view_of(file, entry);
    const auto said = file->metadata().find(str(shard_prefix, entry.name));
    if (said == file->metadata().end()) {
      result.shards.push_back(full_shard(entry.name, tensor));
      continue;
    }
    const std::string what = str(path.string(), ", metadata of tensor '", entry.name, "'");
    Shard shard = parse_address(said->second, what);
    shard.local = tensor;
    if (const std::string fault = fault_of(shard); !fault.empty()) throw DataError(str(what, ": ", fault));
    if (shard.within) shard.local = shard.local.view(shard.local_sizes());  // flat in the file
    result.shards.push_back(std::move(shard));
  }
  for (const auto& [key, name] : file->metadata()) {
    if (key.starts_with(shared_prefix)) result.shared.emplace(key.substr(shared_prefix.size()), name);
  }
  return result;
}

NamedTensors map_tensors(const std::filesystem::path& path) {
  return map_tensors(std::make_shared<SafetensorsFile>(path));
}

NamedTensors map_tensors(const std::shared_ptr<SafetensorsFile>& mapped) {
  const std::filesystem::path& path = mapped->path();
  const FileShards file = map_shards(mapped);
  NamedTensors result;
  std::map<std::string, at::Tensor> by_name;
  for (const Shard& shard : file.shards) {
    if (!is_full(shard))
      throw DataError(str(path.string(), ": has a part of tensor '", shard.name, "' (",
                          describe_address(shard), "); read the checkpoint that it belongs to"));
    result.push_back({shard.name, shard.local});
    by_name[shard.name] = shard.local;
  }
  for (const auto& [alias, name] : file.shared) {
    const auto found = by_name.find(name);
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
