#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rondo/options/declaration.h"

namespace rondo {

struct DataOptions;
struct OpenedData;

// Options of the kind "tokens": the content of a tokens.json, for files without one, and the treatment of
// document boundaries.
struct TokenOptions {
  std::string type = "uint16";  // type of a token in the file
  // Number of different tokens. Required without a tokens.json.
  std::optional<std::int64_t> vocabulary = {};
  std::optional<std::int64_t> end_of_document = {};  // token after every document
  // Treatment of document boundaries. "predicted": the first token of a document is predicted from the end of
  // the previous one, as in GPT-2's training. "masked": it is not predicted.
  std::string boundaries = "predicted";
};

// The kind tokens: a folder written by `rondo tokenize`, one of its shards, or a plain file or folder of
// tokens. In a plain folder, train*.bin are for training and val*.bin for validation if such files exist.
// Otherwise validation is the tail. See data_kinds.h.
struct TokensKind {
  using Options = TokenOptions;  // options of kind tokens
  // Returns the name, summary and flags of kind tokens, without libtorch.
  static std::vector<Declaration> declarations() {
    OptionsOf<TokenOptions> table;
    table.begin_group("Data");
    table.add("token-type", &TokenOptions::type, "Integer type of tokens, for files without a tokens.json",
              one_of({"uint16", "uint32"}));
    table.add("vocabulary-size", &TokenOptions::vocabulary,
              "Number of different tokens, for files without a tokens.json", above_zero());
    table.add("eos-token-id", &TokenOptions::end_of_document,
              "Token after every document, for files without a tokens.json", zero_or_more());
    table.add("document-boundaries", &TokenOptions::boundaries,
              "First token of a document: predicted from the previous document, or masked",
              one_of({"masked", "predicted"}));
    table.without_flags({"token-type", "vocabulary-size", "eos-token-id", "document-boundaries"});
    return {{"tokens", "files of tokens, mapped: what rondo tokenize writes, for gpt", table}};
  }
  // Returns whether the content at `path` is of the kind. Does not throw for unknown content.
  static bool detect(const std::string& name, const std::string& path);
  // Like open_data(), with the kind's own options.
  static OpenedData open(const std::string& name, const std::string& path, const DataOptions& options,
                         const Options& own);
};

}  // namespace rondo
