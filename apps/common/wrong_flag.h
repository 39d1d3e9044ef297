#pragma once

#include <string>
#include <vector>

namespace rondo {

// The flag that the user may have meant by one that there is not.
struct FlagHint {
  std::string name;  // "precision"; empty: nothing is near
  std::string text;  // "--precision O1 --amp-dtype bfloat16"
};

// Returns the flag of `names` (without dashes) that `given` means: by the words that PyTorch, Hugging Face,
// Keras, Lightning, DeepSpeed and Megatron use for it, else the only one that begins with it, else the
// nearest by its letters.
FlagHint suggest_flag(const std::string& given, const std::vector<std::string>& names);

// suggest_flag() for the names of options; empty when nothing is near.
std::string suggest_option(const std::string& given, const std::vector<std::string>& names);

}  // namespace rondo
