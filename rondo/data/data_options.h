#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rondo/data/image/image_options.h"
#include "rondo/data/token_options.h"
#include "rondo/options/declaration.h"

namespace rondo {

// What a trained model knows of its data, for other data that it is to judge: that of DatasetInfo. Empty for
// data to train on, which says it itself.
struct KnownData {
  std::vector<std::string> class_names = {};  // csv, labelled_text: another label is an error
  // csv, regression: of every feature. A table with just these columns, and no label, will do.
  std::vector<double> mean = {}, deviation = {};
};

// Settings of all kinds of data in one place; each kind uses its own.
struct DataOptions {
  // Part of the data kept for validation, in [0, 1); not used where the files have a test part of their own
  // (MNIST, CIFAR, train/ and val/ of image folders and shards).
  double validation_fraction = 0.1;
  // Chooses the validation samples (images, csv, labelled_text); text, masked_text and tokens keep their
  // tail.
  std::uint64_t split_seed = 0;
  // text, tokens: a sample is `context` tokens and, as targets, the token after each. Tokens are bytes, or
  // those of a tokenizer.json (byte_pairs.h).
  std::int64_t context = 128;
  std::string tokenizer_file = {};
  // text: of a directory only files with these endings (".txt"); empty means every file that looks like text.
  std::vector<std::string> extensions = {};
  // csv, regression: name or number (from 0) of the label column; empty means the last.
  // labelled_text: name or number of the label column; empty means the first.
  std::string label_column = {};
  // labelled_text, masked_text: BERT's vocab.txt, and whether it has small letters only. A sample is
  // `context` tokens.
  std::string vocabulary_file = {};
  bool lower_case = true;
  // masked_text: chooses what is hidden.
  std::uint64_t mask_seed = 0;
  TokenOptions tokens = {};  // tokens
  ImageOptions images = {};  // image_folder, webdataset
  KnownData known = {};
};

// The kinds that open_data() knows, and which options of each have a name on the command line, without
// libtorch.
std::vector<Declaration> declared_data_kinds();

}  // namespace rondo
