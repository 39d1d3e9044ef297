#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "rondo/models/gpt.h"
#include "rondo/models/model.h"

namespace rondo {

// How tokens are drawn.
struct GenerateOptions {
  std::int64_t tokens = 200;  // how many to add
  double temperature = 1.0;   // 0 takes the most likely token every time
  std::int64_t top_k = 0;     // draw only among the k most likely; 0 means all
  std::uint64_t seed = 0;     // same seed, weights and prompt: same tokens
};

// The GPT inside `model`, sharing its weights; throws UsageError when the model is of another kind.
Gpt gpt_of(const Model& model);

// Continues `prompt` (at least one token) and returns the added tokens. The model sees at most its last
// `context` tokens. Runs in evaluation mode without gradients and restores the mode afterwards. `on_token`,
// when given, sees each token as it is drawn. Throws UsageError for options or tokens that cannot be.
std::vector<std::int64_t> generate(Gpt& model, std::vector<std::int64_t> prompt,
                                   const GenerateOptions& options,
                                   const std::function<void(std::int64_t)>& on_token = {});

// The same for a byte-level model: an empty prompt stands for a line end.
std::string generate_text(Gpt& model, std::string_view prompt, const GenerateOptions& options);

}  // namespace rondo
