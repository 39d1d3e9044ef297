#pragma once

#include <compare>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "rondo/checkpoint/named_tensors.h"
#include "rondo/nn/model.h"

namespace rondo {

// What load_pretrained() did not find, or did not use.
struct PretrainedReport {
  std::vector<std::string> missing_parts;  // optional parts that kept the weights they had
  std::vector<std::string> unused;         // tensors of the file that the model has no place for
};

// Copies the tensors of the safetensors file `path` into `model`, converting floating-point types. Nothing is
// changed when something is wrong: throws DataError naming the first tensor (in the model's order) that is
// missing or has another shape, or that differs from one it should be shared with.
PretrainedReport load_pretrained(const std::filesystem::path& path, const NamedTensors& model,
                                 const PretrainedNames& names = {});

// Weights for a part of a model, from a file whose tensors have other names.

// Tensors of a file that `from` names stand in the model as `to`. A '*' is for any characters, in `to` for
// those of the '*' of `from` with the same number; without one a name is meant whole. An empty `to` leaves
// the tensors out.
struct RenameRule {
  std::string from;  // in the file
  std::string to;    // in the model

  auto operator<=>(const RenameRule&) const = default;
};

// "encoder.*=backbone.*", FILE=MODEL. Throws UsageError where there is not one '=', FILE is empty, or MODEL
// has neither as many '*' as FILE nor nothing.
RenameRule parse_rename_rule(const std::string& text);

// What loading found.
struct WeightsMatch {
  std::string name;  // in the model; in the file where the model has none of it
  std::string what;  // in the file: name, shape, why not
};

// How a file and a model fit under some rules.
struct WeightsReport {
  std::vector<WeightsMatch> loaded;        // name in the model, name in the file
  std::vector<std::string> missing;        // tensors of the model that the file lacks
  std::vector<std::string> left_over;      // tensors of the file that the model lacks
  std::vector<WeightsMatch> other_shapes;  // of both, in shapes or kinds of numbers that differ
  std::vector<std::string> idle_rules;     // that match no tensor of the file

  // Whether each tensor of either was loaded or left out by a rule, and each rule has matched.
  bool is_complete() const;
};

// Lines for people: how many were loaded, and the names of everything else.
std::string to_text(const WeightsReport& report);

// Copies tensors of `path`, which is as for read_weights(), into those of `model` with the same name after
// the first rule that matches it; floating-point types are converted. What is not loaded keeps its values.
// Without `partial` nothing is changed and DataError has the report where that is not complete; it is thrown
// with `partial` too where nothing at all would be loaded, and for two tensors that become one.
WeightsReport load_partial_weights(const std::filesystem::path& path, const NamedTensors& model,
                                   const std::vector<RenameRule>& rules, bool partial = false);

}  // namespace rondo
