#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "rondo/checkpoint/named_tensors.h"
#include "rondo/format/checkpoint_files.h"

namespace rondo {

// A tensor in files, whole or in pieces that several ranks have written.
struct StoredTensor {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<std::int64_t> sizes;  // of the full tensor
  std::vector<Shard> pieces;        // with values, which are read-only views of mapped files

  // The elements of `address`, of which nothing else is read: a view where one piece has them so, else put
  // together.
  at::Tensor read(const Shard& address) const;
  at::Tensor full() const;
  // Whether it is the same tensor under another name.
  bool is_same(const StoredTensor& other) const;
};

using StoredTensors = std::vector<StoredTensor>;

// Tensors that are here, each in one piece.
StoredTensors stored_tensors(const NamedTensors& tensors);

// The tensors of KIND.safetensors of a checkpoint ("model", "optimizer"), or of
// KIND-00001-of-00004.safetensors and the others where several ranks have written, under all their names.
// Empty where the manifest lists no such file. Throws DataError for a file of another number of files that is
// missing, for pieces that do not belong together, and for tensors of which elements are missing, naming
// them.
StoredTensors stored_tensors(const CheckpointFiles& checkpoint, const std::string& kind);
StoredTensors stored_tensors(const std::filesystem::path& checkpoint, const std::string& kind);

// All of each.
NamedTensors full_tensors(const StoredTensors& tensors);

// "model-00001-of-00004.safetensors" of the first of four, "model.safetensors" of one alone.
std::string part_name(const std::string& kind, int number, int count);

}  // namespace rondo
