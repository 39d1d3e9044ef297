#pragma once

#include <filesystem>
#include <string>

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

// The tensors of a safetensors file under all their names, as read-only views of the mapped file, which stays
// mapped as long as one of them lives. Throws DataError.
NamedTensors map_tensors(const std::filesystem::path& path);

}  // namespace rondo
