#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rondo/data/kind_options.h"
#include "rondo/data/known_data.h"
#include "rondo/options/declaration.h"

namespace rondo {

// What data of any kind is told.
struct DataOptions {
  // Part of the data kept for validation, in [0, 1); not used where the files have a test part of their own
  // (MNIST, CIFAR, train/ and val/ of image folders and shards).
  double validation_fraction = 0.1;
  // Chooses the validation samples (images, csv, labelled_text); text, masked_text and tokens keep their
  // tail.
  std::uint64_t split_seed = 0;
  // The model that reads the data decides the next three. The tokens of a sample; of text and tokens also the
  // targets, the token after each.
  std::int64_t context = 128;
  std::string vocabulary_file = {};  // of a bert: its vocab.txt
  bool lower_case = true;            // of a bert: whether that has small letters only
  // Chooses what every epoch draws anew: parts of images, and what masked_text hides.
  std::uint64_t seed = 0;
  KindOptions of_kind = {};  // the kind's own options
  KnownData known = {};      // what a trained model knows of its data already
};

// The kinds that open_data() knows, and which options of each have a name on the command line, sorted by
// name. Without libtorch.
std::vector<Declaration> declared_data_kinds();

// The options structs of all kinds with these values in them; values that no kind takes are passed over.
// Throws UsageError for a value that cannot be.
KindOptions read_kind_options(const OptionValues& values);

}  // namespace rondo
