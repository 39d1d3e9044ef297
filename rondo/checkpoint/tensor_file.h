#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rondo/checkpoint/named_tensors.h"
#include "rondo/checkpoint/tensor_source.h"
#include "rondo/format/checkpoint_directory.h"

// Tensors of libtorch in safetensors files.
namespace rondo {

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
