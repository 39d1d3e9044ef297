#pragma once

#include <string>
#include <vector>

#include "rondo/data/shared_data_options.h"
#include "rondo/options/declaration.h"

namespace rondo {

struct DataOptions;
struct OpenedData;

// The kind labelled_text: a file of labelled texts; needs DataOptions::vocabulary_file. The label column is
// by default the first. Validation is a random part. See data_kinds.h.
struct LabelledTextKind {
  using Options = LabelColumnOption;
  static std::vector<Declaration> declarations();
  static bool detect(const std::string& name, const std::string& path);
  static OpenedData open(const std::string& name, const std::string& path, const DataOptions& options,
                         const Options& own);
};

}  // namespace rondo
