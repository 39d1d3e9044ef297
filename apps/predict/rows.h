#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <ostream>
#include <string>
#include <vector>

namespace rondo {

// What a model's outputs are.
enum class PredictionKind {
  classes,  // [samples, classes] of logits
  tokens,   // [samples, length, vocabulary] of logits
  numbers,  // anything else: values for each sample
};

// Writes predictions, a row for each sample, in the order of samples.
class PredictionRows {
 public:
  virtual ~PredictionRows() = default;
  // Of the next samples; `outputs` is on the CPU, in float32. May be called until the samples end.
  virtual void write(const at::Tensor& outputs) = 0;
};

// `format` is "csv" (a first line names the columns) or "jsonl". `class_names` may be empty: numbers then.
std::unique_ptr<PredictionRows> make_prediction_rows(const std::string& format, PredictionKind kind,
                                                     std::vector<std::string> class_names, std::ostream& out);

}  // namespace rondo
