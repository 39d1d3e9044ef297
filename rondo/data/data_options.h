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

// What a trained model knows of its data, for other data that it is to judge: that of DatasetInfo. Empty for
// data to train on, which says it itself.
struct KnownData {
  std::vector<std::string> class_names = {};  // csv, labelled_text: another label is an error
  // csv, regression: of every feature. A table with just these columns, and no label, will do.
  std::vector<double> mean = {};
  std::vector<double> deviation = {};  // likewise
  std::string source = {};             // the file that says so, which errors name
};

// Who knows it, for errors: "the model", and the file that says so.
std::string who_knows(const KnownData& known);

// What is wrong with a label that is none of the classes: names the label, them and who knows them.
std::string unknown_class(const KnownData& known, std::string_view label);

// The options structs of all kinds of data: TextOptions, ImageOptions, ... A kind reads its own and no
// others.
class KindOptions {
 public:
  KindOptions() = default;  // every kind has its defaults
  // The options of the kinds that take this struct; defaults for the others.
  template <class Options>
  requires(!std::is_same_v<Options, KindOptions>) KindOptions(Options options) {
    edit<Options>() = std::move(options);
  }

  // The options of the kinds that take this struct.
  template <class Options>
  const Options& get() const {
    return std::get<Options>(structs_);
  }
  // The same, to be changed.
  template <class Options>
  Options& edit() {
    return std::get<Options>(structs_);
  }

 private:
  AllKindOptions structs_;
};

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
