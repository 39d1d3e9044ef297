#pragma once

#include <string>
#include <vector>

#include "rondo/options/declaration.h"

namespace rondo {

struct DataOptions;
struct OpenedData;

// The kinds cifar10 and cifar100: a directory as unpacked from the archive (data_batch_1.bin ... and
// test_batch.bin, or train.bin and test.bin), the directory above it, or one file. Every data_batch_N.bin
// that is there is used. See data_kinds.h.
struct CifarKind {
  using Options = NoOptions;
  static std::vector<Declaration> declarations();
  static bool detect(const std::string& name, const std::string& path);
  static OpenedData open(const std::string& name, const std::string& path, const DataOptions& options,
                         const Options& own);
};

}  // namespace rondo
