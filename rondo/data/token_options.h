#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "rondo/options/option_table.h"

namespace rondo {

// What the kind "tokens" can be told: what a tokens.json would say, for files without one, and whether
// documents know of each other.
struct TokenOptions {
  std::string type = "uint16";  // of a token in the file
  // Different tokens. Needed without a tokens.json.
  std::optional<std::int64_t> vocabulary = {};
  std::optional<std::int64_t> end_of_document = {};  // the token behind every document
  // "predicted": the first token of a document is predicted from the end of the one before, as GPT-2 was
  // trained; "masked": it is not asked for.
  std::string boundaries = "predicted";
};

OptionsOf<TokenOptions> declared_token_options();

}  // namespace rondo
