#pragma once

#include <compare>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "rondo/checkpoint/named_tensors.h"
#include "rondo/nn/model.h"

namespace rondo {

// Report of load_pretrained(): tensors not found and tensors not used.
struct PretrainedReport {
  std::vector<std::string> missing_parts;  // optional parts that kept their previous weights
  std::vector<std::string> unused;         // tensors of the file that the model lacks
};

// Copies the tensors of the safetensors file `path` into `model`, converting floating-point types. Changes
// nothing on error. Throws DataError naming the first tensor (in the model's order) that is missing, has
// another shape, or differs from a tensor that it must be shared with.
PretrainedReport load_pretrained(const std::filesystem::path& path, const NamedTensors& model,
                                 const PretrainedNames& names = {});

// Loading of weights for a part of a model from a file with other tensor names.

// A rule that renames tensors of a file from `from` to `to` in the model. A '*' matches any characters; the
// n-th '*' of `to` inserts the text of the n-th '*' of `from`. Without a '*' the whole name must match. An
// empty `to` skips the tensors.
struct RenameRule {
  std::string from;  // pattern for names in the file
  std::string to;    // name in the model

  auto operator<=>(const RenameRule&) const = default;  // by fields
};

// Parses FILE=MODEL, such as "encoder.*=backbone.*". Throws UsageError if there is not exactly one '=', if
// FILE is empty, or if MODEL is not empty and has a different number of '*' than FILE.
RenameRule parse_rename_rule(const std::string& text);

// One entry of a WeightsReport.
struct WeightsMatch {
  std::string name;  // name in the model
  std::string what;  // name in the file, or the mismatch of shapes
};

// Result of matching a file with a model under rename rules.
struct WeightsReport {
  std::vector<WeightsMatch> loaded;        // name in the model, name in the file
  std::vector<std::string> missing;        // tensors of the model that the file lacks
  std::vector<std::string> left_over;      // tensors of the file that the model lacks
  std::vector<WeightsMatch> other_shapes;  // tensors whose shapes or types differ
  std::vector<std::string> idle_rules;     // rules that match no tensor of the file

  // Returns whether every tensor of both was loaded or skipped by a rule, and every rule has matched.
  bool is_complete() const;
};

// Formats the report for people: the number of loaded tensors and the names of all others.
std::string to_text(const WeightsReport& report);

// Copies tensors of `path` (any source of read_weights()) into the tensors of `model` that have the same name
// after the first matching rule. Converts floating-point types. Tensors that are not loaded keep their
// values. Without `partial`, an incomplete report is a DataError that contains the report, and nothing is
// changed. With `partial`, throws DataError only if no tensor would be loaded. Always throws DataError for
// two tensors with the same new name.
WeightsReport load_partial_weights(const std::filesystem::path& path, const NamedTensors& model,
                                   const std::vector<RenameRule>& rules, bool partial = false);

}  // namespace rondo
