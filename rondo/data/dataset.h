#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

namespace rondo {

// A batch of samples, stacked along the first dimension of every tensor. `samples` may be 0: the first
// dimension of the tensors is then 0, and a model still returns a loss of zero with gradients.
struct Batch {
  // inputs of the model, any dtypes; data sets here return one: [samples, ...DatasetInfo::input_shape],
  // float32, or int64 for tokens
  std::vector<at::Tensor> inputs;
  // targets of the loss function; data sets here return one: int64 [samples] of classes (-100: unknown),
  // int64 [samples, context] of next tokens, or for regression float32 [samples, 1]
  std::vector<at::Tensor> targets;
  std::int64_t samples = 0;  // number of samples in the batch
  // Index of each sample in the data set that the batch was read from; set by the loader.
  std::vector<std::int64_t> indices = {};

  // Returns the only input or target. Throws UsageError if there is none or more than one.
  const at::Tensor& input() const;
  const at::Tensor& target() const;  // same for the target
};

// Description of a data set, sufficient to choose and size a model for it.
struct DatasetInfo {
  std::string kind;    // "text", "idx", "cifar10", "cifar100", "csv", ...
  std::string source;  // path from which the data set was opened
  // shape of one sample: {context}, {channels, height, width}, {features} or for BERT {3, context}
  std::vector<std::int64_t> input_shape;
  std::int64_t classes = 0;                   // number of classes, or vocabulary size
  std::int64_t targets_per_sample = 1;        // predictions per sample: the context length for text
  std::vector<std::string> class_names = {};  // csv, labelled_text: class names in the file; else empty
  // Unit of throughput: "tokens" or "samples". A sample has targets_per_sample tokens.
  std::string unit = "samples";
  std::int64_t vocabulary = 0;  // labelled_text, masked_text: size of the tokenizer's vocabulary
  // csv, regression: means that were subtracted from the features.
  std::vector<double> mean = {};
  std::vector<double> deviation = {};  // standard deviations that the features were divided by

  // Returns the part of a model's configuration (make_model) that the data determines: {"context",
  // "vocabulary"} for text; {"vocabulary"}, and {"classes"} for labelled_text, for BERT's kinds;
  // {"input_shape", "classes"} for everything else. For regression, "classes" is the number of targets per
  // sample.
  nlohmann::json model_config() const;
};

// A set of samples that can be read in any order. All methods are thread-safe.
class Dataset {
 public:
  virtual ~Dataset() = default;
  // Returns the number of samples.
  virtual std::int64_t size() const = 0;
  // Returns the samples at `indices` in that order; an index may repeat. Tensors are new and on the CPU.
  // Throws UsageError for an index outside [0, size()).
  virtual Batch get(std::span<const std::int64_t> indices) const = 0;
  // Like get(), for data that differs between epochs (masked_text hides other tokens in each epoch).
  virtual Batch get_at_epoch(std::span<const std::int64_t> indices, std::int64_t /*epoch*/) const {
    return get(indices);
  }
  virtual const DatasetInfo& info() const = 0;  // description of the samples
};

// Throws UsageError that names the first index outside [0, size).
void check_indices(std::span<const std::int64_t> indices, std::int64_t size);

// A data set in memory: rows of tensors of any dtypes, with as many inputs and targets as the model and the
// loss function take.
class TensorDataset : public Dataset {
 public:
  // Row i of every tensor belongs to sample i. `classes` is 0 if the targets are not classes. Throws
  // UsageError if there is no input or the tensors have different numbers of rows.
  TensorDataset(std::vector<at::Tensor> inputs, std::vector<at::Tensor> targets, std::int64_t classes = 0);

  std::int64_t size() const override { return inputs_.front().size(0); }
  Batch get(std::span<const std::int64_t> indices) const override;
  const DatasetInfo& info() const override { return info_; }

 private:
  std::vector<at::Tensor> inputs_, targets_;
  DatasetInfo info_;
};

}  // namespace rondo
