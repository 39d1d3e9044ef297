#pragma once

#include <string>
#include <vector>

#include "rondo/options/declaration.h"

namespace rondo {

struct DataOptions;
struct OpenedData;

// The kind idx, MNIST and what is stored like it: a directory with train-images-idx3-ubyte and
// train-labels-idx1-ubyte (and t10k-images-..., t10k-labels-... for validation; "." instead of "-" before idx
// is accepted), or one images file with its labels file beside it. See data_kinds.h.
struct IdxKind {
  using Options = NoOptions;
  static std::vector<Declaration> declarations();
  static bool detect(const std::string& name, const std::string& path);
  static OpenedData open(const std::string& name, const std::string& path, const DataOptions& options,
                         const Options& own);
};

}  // namespace rondo
