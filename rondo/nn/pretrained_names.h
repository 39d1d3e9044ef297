#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace rondo {

// How a file of somebody else's weights relates to a model.
struct PretrainedNames {
  // The model's name of a tensor in the file.
  std::function<std::string(const std::string&)> in_model = [](const std::string& name) { return name; };
  // Tensors of the file, by their names there, that are no weights: passed over without a word.
  std::function<bool(const std::string&)> is_ignored = [](const std::string&) { return false; };
  // Weights, by the model's names, that the file holds transposed.
  std::function<bool(const std::string&)> is_transposed = [](const std::string&) { return false; };
  // Parts of the model that the file may lack ("classifier."): all tensors of a part are there, or none of
  // them.
  std::vector<std::string> optional_parts = {};
  // Further names, after in_model, of tensors that the model shares: first the further name, then the
  // model's. Where a file has both they must be equal.
  std::vector<std::pair<std::string, std::string>> shared = {};
};

}  // namespace rondo
