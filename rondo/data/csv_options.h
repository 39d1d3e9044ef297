#pragma once

#include <string>
#include <vector>

#include "rondo/data/shared_data_options.h"
#include "rondo/options/declaration.h"

namespace rondo {

struct DataOptions;
struct OpenedData;

// The kinds csv and regression, CSV and TSV: a file, or a folder of nothing else. Each row has a class, or a
// number to predict, in the label column, by default the last. Features are standardised with the mean and
// deviation of the training rows. See data_kinds.h.
struct CsvKind {
  using Options = LabelColumnOption;
  static std::vector<Declaration> declarations();
  static bool detect(const std::string& name, const std::string& path);
  static OpenedData open(const std::string& name, const std::string& path, const DataOptions& options,
                         const Options& own);
};

}  // namespace rondo
