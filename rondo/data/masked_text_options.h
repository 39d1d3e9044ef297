#pragma once

#include <string>
#include <vector>

#include "rondo/data/shared_data_options.h"
#include "rondo/options/declaration.h"

namespace rondo {

struct DataOptions;
struct OpenedData;

// The kind masked_text: a file or a directory of text (as the kind text reads it); needs
// DataOptions::vocabulary_file. Validation is the tail. See data_kinds.h.
struct MaskedTextKind {
  using Options = ExtensionsOption;
  static std::vector<Declaration> declarations();
  static bool detect(const std::string& name, const std::string& path);
  static OpenedData open(const std::string& name, const std::string& path, const DataOptions& options,
                         const Options& own);
};

}  // namespace rondo
