#pragma once

#include <string>
#include <vector>

#include "rondo/data/shared_data_options.h"
#include "rondo/options/declaration.h"

namespace rondo {

struct DataOptions;
struct OpenedData;

// Of kind text.
struct TextOptions : ExtensionsOption {
  std::string tokenizer_file = {};  // a tokenizer.json (byte_pairs.h); empty: tokens are bytes
};

// The kind text: a file or a directory of it. Validation is the tail of the text: validation_fraction of its
// tokens, at least one window. See data_kinds.h.
struct TextKind {
  using Options = TextOptions;                     // of kind text
  static std::vector<Declaration> declarations();  // of kind text, without libtorch
  // Whether the content at `path` is of the kind; never throws for content that it does not understand.
  static bool detect(const std::string& name, const std::string& path);
  // As open_data(), with the kind's own options.
  static OpenedData open(const std::string& name, const std::string& path, const DataOptions& options,
                         const Options& own);
};

}  // namespace rondo
