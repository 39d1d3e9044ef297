#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rondo/options/declaration.h"

namespace rondo {

struct DataOptions;
struct OpenedData;

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

// The kind tokens: a folder that `rondo tokenize` made, one of its shards, or a plain file or folder of
// tokens, of which train*.bin are for training and val*.bin for validation where such names are there.
// Otherwise validation is the tail. See data_kinds.h.
struct TokensKind {
  using Options = TokenOptions;  // of kind tokens
  // The name, summary and flags of kind tokens, without libtorch.
  static std::vector<Declaration> declarations() {
    OptionsOf<TokenOptions> table;
    table.begin_group("Data");
    table.add("token-type", &TokenOptions::type,
              "Of token files without a tokens.json: how a token is stored", one_of({"uint16", "uint32"}));
    table.add("vocabulary-size", &TokenOptions::vocabulary,
              "Of token files without a tokens.json: how many different tokens there are", above_zero());
    table.add("eos-token-id", &TokenOptions::end_of_document,
              "Of token files without a tokens.json: the token behind every document", zero_or_more());
    table.add("document-boundaries", &TokenOptions::boundaries,
              "Whether the first token of a document is predicted from the one before, or masked",
              one_of({"masked", "predicted"}));
    table.without_flags({"token-type", "vocabulary-size", "eos-token-id", "document-boundaries"});
    return {{"tokens", "files of tokens, mapped: what rondo tokenize writes, for gpt", table}};
  }
  // Whether the content at `path` is of the kind; never throws for content that it does not understand.
  static bool detect(const std::string& name, const std::string& path);
  // As open_data(), with the kind's own options.
  static OpenedData open(const std::string& name, const std::string& path, const DataOptions& options,
                         const Options& own);
};

}  // namespace rondo
