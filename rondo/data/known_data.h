#pragma once

#include <string>
#include <string_view>
#include <vector>

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

}  // namespace rondo
