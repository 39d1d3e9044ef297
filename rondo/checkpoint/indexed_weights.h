#pragma once

#include <filesystem>
#include <optional>

#include "rondo/checkpoint/named_tensors.h"

// Weights as Hugging Face keeps them in a folder: model.safetensors, or parts of it that
// model.safetensors.index.json lists.
namespace rondo {

// The file in `folder` to give to read_safetensors(): the weights, or the index of their parts. Nothing where
// there is neither.
std::optional<std::filesystem::path> weights_in_folder(const std::filesystem::path& folder);

// The tensors of a safetensors file, or of the parts that an index (NAME.index.json) lists beside itself; as
// read-only views of the mapped files. Throws DataError, also for a part or a tensor of a part that is not
// there.
NamedTensors read_safetensors(const std::filesystem::path& path);

}  // namespace rondo
