#include "rondo/checkpoint/stored_tensor.h"

#include <torch/types.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <unordered_map>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/checkpoint/tensor_file.h"

namespace rondo {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kEnding = ".safetensors";

// The files of one kind that the manifest lists, in order. Which there must be, the name of each says.
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

// Adds a piece to what is known of its tensor.
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
  std::map<std::string, std::pair<std::string, std::string>> shared;  // further name, name, file
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
  std::unordered_map<const c10::TensorImpl*, std::size_t> places;  // by the first piece
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

}  // namespace rondo
