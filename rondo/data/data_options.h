#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "rondo/data/data_kinds.h"
#include "rondo/options/declaration.h"

namespace rondo {

// Properties of a trained model's data that evaluation data must match; see DatasetInfo. Empty for training
// data, which defines them.
struct KnownData {
  std::vector<std::string> class_names = {};  // csv, labelled_text: other labels are errors
  // csv, regression: column names of the training data with the mean of every feature. A table with exactly
  // these columns and no label is accepted.
  std::vector<double> mean = {};
  std::vector<double> deviation = {};  // csv, regression: standard deviation of every feature
  std::string source = {};             // file with these properties, for errors
};

// Returns the owner of the known properties for errors: "the model", with its file if known.
std::string source_of_properties(const KnownData& known);

// Returns the error for a label that is not a known class; names the label, the classes and their owner.
std::string unknown_class(const KnownData& known, std::string_view label);

// The options structs of all kinds of data: TextOptions, ImageOptions, ... Each kind reads only its own
// struct.
class KindOptions {
 public:
  KindOptions() = default;  // defaults for every kind
  // Sets the options of the kinds that use this struct; defaults for the others.
  template <class Options>
  requires(!std::is_same_v<Options, KindOptions>) KindOptions(Options options) {
    edit<Options>() = std::move(options);
  }

  // Returns the options of the kinds that use this struct.
  template <class Options>
  const Options& get() const {
    return std::get<Options>(structs_);
  }
  // Returns a mutable reference to these options.
  template <class Options>
  Options& edit() {
    return std::get<Options>(structs_);
  }

 private:
  AllKindOptions structs_;
};

// Options common to all kinds of data.
struct DataOptions {
  // Fraction of the data reserved for validation, in [0, 1). Unused if the files have their own test part
  // (MNIST, CIFAR, train/ and val/ of image folders and shards).
  double validation_fraction = 0.1;
  // Seed of the choice of validation samples (images, csv, labelled_text); text, masked_text and tokens use
  // the tail.
  std::uint64_t split_seed = 0;
  // The model determines the next three fields. Number of tokens of a sample; for text and tokens also the
  // number of targets, the token after each.
  std::int64_t context = 128;
  std::string vocabulary_file = {};  // for BERT models: path of vocab.txt
  bool lower_case = true;            // for BERT models: whether the vocabulary is lower-case
  // Seed of the random choices of every epoch: crops of images, hidden tokens of masked_text.
  std::uint64_t seed = 0;
  KindOptions of_kind = {};  // options of each kind
  KnownData known = {};      // properties that a trained model requires
};

// Returns the kinds that open_data() accepts with their options on the command line, sorted by name. Needs no
// libtorch.
std::vector<Declaration> declared_data_kinds();

// Parses `values` into the options structs of all kinds; ignores values that no kind has. Throws UsageError
// for an invalid value.
KindOptions read_kind_options(const OptionValues& values);

}  // namespace rondo
