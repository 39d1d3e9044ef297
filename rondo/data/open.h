#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rondo/data/data_options.h"
#include "rondo/data/dataset.h"

namespace rondo {

class WordPiece;

// Opens the tokenizer of the options. Throws UsageError without a vocabulary, and DataError for an invalid
// one.
std::shared_ptr<const WordPiece> open_tokenizer(const DataOptions& options);

// Result of open_data().
struct OpenedData {
  std::string kind;                      // one of data_kinds()
  std::shared_ptr<const Dataset> train;  // never null
  std::shared_ptr<const Dataset>
      validation;  // null if validation_fraction is 0 and the files have no test part
};

// Opens the data at `path` (a file or directory). `kind` is one of data_kinds(), or "auto" to detect it.
// Throws DataError that names the file, the position and the expected content. Throws UsageError for an
// unknown kind or invalid option values, such as a context longer than the text.
OpenedData open_data(const std::string& kind, const std::string& path, const DataOptions& options = {});

// Returns the kind as which open_data() would open the data at `path`: one of data_kinds(). Throws like
// open_data().
std::string find_data_kind(const std::string& kind, const std::string& path);

// Returns the accepted kinds, sorted: cifar10, cifar100, csv, idx, image_folder, labelled_text, masked_text,
// regression, text, tokens, webdataset. "auto" never detects labelled_text, masked_text and regression, which
// look like tables and text.
std::vector<std::string> data_kinds();

}  // namespace rondo
