#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rondo/data/data_options.h"
#include "rondo/data/dataset.h"

namespace rondo {

class WordPiece;

// The tokenizer that the options name. Throws UsageError without a vocabulary, DataError for a bad one.
std::shared_ptr<const WordPiece> open_tokenizer(const DataOptions& options);

// What open_data() found.
struct OpenedData {
  std::string kind;                      // one of data_kinds()
  std::shared_ptr<const Dataset> train;  // never null
  std::shared_ptr<const Dataset>
      validation;  // null when validation_fraction is 0 and the files have no test part
};

// Opens the data at `path` (a file or directory). `kind` is one of data_kinds(), or "auto" to look at the
// content. Throws DataError that names the file, the place in it and what was expected there; UsageError for
// an unknown kind or option values that cannot be, such as a context longer than the text.
OpenedData open_data(const std::string& kind, const std::string& path, const DataOptions& options = {});

// The kind that open_data() would take the data at `path` for: one of data_kinds(). Throws as open_data().
std::string find_data_kind(const std::string& kind, const std::string& path);

// What open_data accepts, sorted: cifar10, cifar100, csv, idx, image_folder, labelled_text, masked_text,
// regression, text, tokens, webdataset.
// "auto" never finds labelled_text, masked_text and regression, which are tables and text by their looks.
std::vector<std::string> data_kinds();

}  // namespace rondo
