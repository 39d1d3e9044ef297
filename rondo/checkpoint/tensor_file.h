#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rondo/checkpoint/named_tensors.h"
#include "rondo/format/checkpoint_directory.h"
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

// A tensor for a file that need not be there before it is written: a shard's whole, say, put together when it
// is its turn and dropped when it is in the file.
struct TensorSource {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<std::int64_t> sizes;
  // Those with the same one are one tensor under several names. Not followed.
  const void* identity = nullptr;
  // Gives the tensor, on any device and with any strides.
  std::function<at::Tensor()> make;
};

using TensorSources = std::vector<TensorSource>;

// Of tensors that are there.
TensorSource source_of(const NamedTensor& tensor);
TensorSources sources_of(const NamedTensors& tensors);

// The numbers of those that a file holds, one for each tensor, in the order in which it is written: whoever
// makes them together with a writer makes them in this order. Throws UsageError for a name that is there
// twice and for a dtype that no file can hold.
std::vector<std::size_t> order_in_file(const TensorSources& sources);

// Tensors of libtorch in safetensors files.

// Adds a file of these tensors to a checkpoint, or writes it on its own. A tensor that stands under several
// names is stored once, under the first; the others are noted in the file's metadata. Tensors may be on any
// device and have any strides; one at a time is made, and copied to the CPU when it has to be.
void write_tensors(CheckpointWriter& checkpoint, const std::string& file_name, const TensorSources& tensors);
void write_tensors(const std::filesystem::path& path, const NamedTensors& tensors);

// Writes a file of pieces of tensors, each with its address in the full one, which the file's metadata hold.
// `shared` are further names, with the name under which the tensor is stored, in this file or another.
// Returns what a manifest says of the file, which is still to be synced and closed. Throws Error.
SafetensorsWriter::Unsynced write_shards(const std::filesystem::path& path, const std::vector<Shard>& shards,
                                         const std::map<std::string, std::string>& shared = {});

struct FileShards {
  std::vector<Shard> shards;                  // values are read-only views of the mapped file
  std::map<std::string, std::string> shared;  // as in write_shards()
};
// What is in a safetensors file; tensors without an address are full. Throws DataError.
FileShards map_shards(const std::filesystem::path& path);
FileShards map_shards(const std::shared_ptr<SafetensorsFile>& file);

// The tensors of a safetensors file under all their names, as read-only views of the mapped file, which stays
// mapped as long as one of them lives. Throws DataError.
NamedTensors map_tensors(const std::filesystem::path& path);
NamedTensors map_tensors(const std::shared_ptr<SafetensorsFile>& file);

// What a file's header says of tensors: each once, and the further names of shared ones in the metadata.
struct TensorLayout {
  std::vector<TensorSpec> specs;
  std::map<std::string, std::string> metadata;
  std::map<std::string, std::size_t> numbers;  // of the sources by name
};
// Throws UsageError for a dtype that no file can hold.
TensorLayout lay_out(const TensorSources& sources);

}  // namespace rondo
