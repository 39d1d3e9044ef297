#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "rondo/models/gpt.h"
#include "rondo/models/model.h"

namespace rondo {

// Options of drawing tokens.
struct GenerateOptions {
  std::int64_t tokens = 200;  // number of tokens to add
  double temperature = 1.0;   // 0: always the most likely token
  std::int64_t top_k = 0;     // draw among the k most likely tokens; 0: all
  std::uint64_t seed = 0;     // the same seed, weights and prompt give the same tokens
};

// Returns the GPT inside `model`, which shares its weights. Throws UsageError for any other model.
Gpt gpt_of(const Model& model);

// Continues `prompt` (at least one token) and returns the added tokens. The model sees at most its last
// `context` tokens. Runs in evaluation mode without gradients and restores the mode afterwards. Calls
// `on_token`, if set, with each drawn token. Throws UsageError for invalid options or tokens.
std::vector<std::int64_t> generate(Gpt& model, std::vector<std::int64_t> prompt,
                                   const GenerateOptions& options,
                                   const std::function<void(std::int64_t)>& on_token = {});

// Generates text with a byte-level model; an empty prompt means a newline.
std::string generate_text(Gpt& model, std::string_view prompt, const GenerateOptions& options);

}  // namespace rondo
