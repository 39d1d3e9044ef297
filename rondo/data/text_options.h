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
  using Options = TextOptions;
  static std::vector<Declaration> declarations();
  static bool detect(const std::string& name, const std::string& path);
  static OpenedData open(const std::string& name, const std::string& path, const DataOptions& options,
                         const Options& own);
};

}  // namespace rondo
