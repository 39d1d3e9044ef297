#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "rondo/checkpoint/named_tensors.h"
#include "rondo/nn/pretrained_names.h"

namespace rondo {

// What load_pretrained() did not find, or did not use.
struct PretrainedReport {
  std::vector<std::string> missing_parts;  // optional parts that kept the weights they had
  std::vector<std::string> unused;         // tensors of the file that the model has no place for
};

// Copies the tensors of the safetensors file `path` into `model`, converting floating-point types. Nothing is
// changed when something is wrong: throws DataError naming the first tensor (in the model's order) that is
// missing or has another shape, or that differs from one it should be shared with.
PretrainedReport load_pretrained(const std::filesystem::path& path, const NamedTensors& model,
                                 const PretrainedNames& names = {});

}  // namespace rondo
