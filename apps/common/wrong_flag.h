#pragma once

#include <string>
#include <vector>

namespace rondo {

// A suggestion for an unknown flag.
struct FlagHint {
  std::string name;  // "precision"; empty: no flag is similar
  std::string text;  // "--precision O1 --amp-dtype bfloat16"
};

// Returns the flag of `names` (without dashes) that `given` means: by the names that PyTorch, Hugging Face,
// Keras, Lightning, DeepSpeed and Megatron use for it, else the only flag with that prefix, else the one with
// the smallest edit distance.
FlagHint suggest_flag(const std::string& given, const std::vector<std::string>& names);

// Returns suggest_flag() for the names of options; empty if none is similar.
std::string suggest_option(const std::string& given, const std::vector<std::string>& names);

}  // namespace rondo
