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

// A tensor stored in files, whole or in pieces written by several ranks.
struct StoredTensor {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<std::int64_t> sizes;  // shape of the full tensor
  std::vector<Shard> pieces;        // pieces with values: read-only views of mapped files

  // Returns the elements of `address` and reads no others: a view if one piece contains exactly these
  // elements, else a new tensor assembled from pieces.
  at::Tensor read(const Shard& address) const;
  at::Tensor full() const;
  // Returns whether it is the same tensor under another name.
  bool is_same(const StoredTensor& other) const;
};

using StoredTensors = std::vector<StoredTensor>;

// Wraps tensors in memory, each as one piece.
StoredTensors stored_tensors(const NamedTensors& tensors);

// Returns the tensors of one kind ("model", "optimizer") in a checkpoint, under all their names: from
// KIND.safetensors, or from KIND-00001-of-00004.safetensors and so on if several ranks wrote it. Empty if the
// manifest lists no such file. Throws DataError if one of the files is missing, for pieces that contradict
// each other, and for a tensor with missing elements, naming them.
StoredTensors stored_tensors(const CheckpointFiles& checkpoint, const std::string& kind);
StoredTensors stored_tensors(const std::filesystem::path& checkpoint, const std::string& kind);

// Returns the full tensors.
NamedTensors full_tensors(const StoredTensors& tensors);

// Returns the name of a part: "model-00001-of-00004.safetensors" for the first of four, "model.safetensors"
// for a single part.
std::string part_name(const std::string& kind, int number, int count);

// A tensor to be written that need not exist beforehand: for example, the full tensor of a shard is gathered
// when it is written and freed afterwards.
struct TensorSource {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<std::int64_t> sizes;
  // Sources with equal identities are the same tensor under several names. Never dereferenced.
  const void* identity = nullptr;
  // Returns the tensor, on any device and with any strides.
  std::function<at::Tensor()> make;
};

using TensorSources = std::vector<TensorSource>;

// Return sources for existing tensors.
TensorSource source_of(const NamedTensor& tensor);
TensorSources sources_of(const NamedTensors& tensors);

// Returns the indices of the sources to write, one per tensor, in file order. Ranks that cooperate in
// creating the tensors must do so in this order. Throws UsageError for a duplicate name and for a dtype that
// the file format lacks.
std::vector<std::size_t> order_in_file(const TensorSources& sources);

// Tensors of libtorch in safetensors files.

// Writes a file of these tensors, into a checkpoint or separately. A tensor with several names is stored
// once, under the first; the file's metadata list the other names. Tensors may be on any device with any
// strides. Creates one tensor at a time and copies it to the CPU if necessary.
void write_tensors(CheckpointWriter& checkpoint, const std::string& file_name, const TensorSources& tensors);
void write_tensors(const std::filesystem::path& path, const NamedTensors& tensors);

// Writes a file of pieces of tensors, with the address of each piece in the file's metadata. `shared` maps
// further names to the names under which tensors are stored, in this or another file. Returns the manifest
// record and the file, which is not synced and closed yet. Throws Error.
SafetensorsWriter::Unsynced write_shards(const std::filesystem::path& path, const std::vector<Shard>& shards,
                                         const std::map<std::string, std::string>& shared = {});

struct FileShards {
  std::vector<Shard> shards;                  // values are read-only views of the mapped file
  std::map<std::string, std::string> shared;  // as in write_shards()
};
// Maps the content of a safetensors file; tensors without an address are full tensors. Throws DataError.
FileShards map_shards(const std::filesystem::path& path);
FileShards map_shards(const std::shared_ptr<SafetensorsFile>& file);

// Returns the tensors of a safetensors file under all their names, as read-only views. The file stays mapped
// as long as any of them lives. Throws DataError.
NamedTensors map_tensors(const std::filesystem::path& path);
NamedTensors map_tensors(const std::shared_ptr<SafetensorsFile>& file);

// The header content of a file: each tensor once, and the further names of shared tensors in the metadata.
struct TensorLayout {
  std::vector<TensorSpec> specs;
  std::map<std::string, std::string> metadata;
  std::map<std::string, std::size_t> numbers;  // index of the source by name
};
// Computes the layout. Throws UsageError for a dtype that the file format lacks.
TensorLayout lay_out(const TensorSources& sources);

}  // namespace rondo
