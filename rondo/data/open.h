#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rondo/data/dataset.h"

namespace rondo {

class WordPiece;

// Settings of all kinds of data in one place, so that a command line can fill them; each kind uses its own.
struct DataOptions {
  // Part of the data kept for validation, in [0, 1); not used where the files have a test part of their own
  // (MNIST, CIFAR).
  double validation_fraction = 0.1;
  // Chooses the validation samples (idx, cifar, csv, labelled_text); text and masked_text keep their tail.
  std::uint64_t split_seed = 0;
  // text: a sample is `context` bytes and, as targets, the byte after each.
  std::int64_t context = 128;
  // text: of a directory only files with these endings (".txt"); empty means every file that looks like text.
  std::vector<std::string> extensions = {};
  // csv: name or number (from 0) of the label column; empty means the last.
  // labelled_text: name or number of the label column; empty means the first.
  std::string label_column = {};
  // labelled_text, masked_text: BERT's vocab.txt, and whether it has small letters only. A sample is
  // `context` tokens.
  std::string vocabulary_file = {};
  bool lower_case = true;
  // masked_text: chooses what is hidden.
  std::uint64_t mask_seed = 0;
};

// The tokenizer that the options name. Throws UsageError without a vocabulary, DataError for a bad one.
std::shared_ptr<const WordPiece> open_tokenizer(const DataOptions& options);

struct OpenedData {
  std::string kind;
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset>
      validation;  // null when validation_fraction is 0 and the files have no test part
};

// Opens the data at `path` (a file or directory). `kind` is one of data_kinds(), or "auto" to look at the
// content. Throws DataError that names the file, the place in it and what was expected there; UsageError for
// an unknown kind or option values that cannot be, such as a context longer than the text.
OpenedData open_data(const std::string& kind, const std::string& path, const DataOptions& options = {});

// What open_data accepts, sorted: cifar10, cifar100, csv, idx, labelled_text, masked_text, text. "auto" never
// finds labelled_text and masked_text, which are tables and text by their looks.
std::vector<std::string> data_kinds();

// One kind of data. A new one is a file that defines it and a line in open.cpp.
struct DataKind {
  std::string name;
  // Whether the content at `path` is of this kind. Never throws for content it does not understand.
  std::function<bool(const std::string& path)> detect;
  std::function<OpenedData(const std::string& path, const DataOptions& options)> open;
};

}  // namespace rondo
