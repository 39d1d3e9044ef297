#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

namespace rondo {

// Some samples, stacked along the first dimension of every tensor. `samples` may be 0: the tensors then have
// a first dimension of 0, and a model still gives a loss (of zero) that gradients flow from.
struct Batch {
  std::vector<at::Tensor> inputs;   // the model's, of any dtypes; data sets here give one: [samples,
                                    // ...DatasetInfo::input_shape], float32, or int64 for tokens
  std::vector<at::Tensor> targets;  // the loss function's; here one, int64: [samples] of classes (-100: not
                                    // known), or [samples, context] of next tokens; regression: float32
                                    // [samples, 1]
  std::int64_t samples = 0;         // in the batch
  // Number of each sample in the data set that the batch was read from; the loader fills it in.
  std::vector<std::int64_t> indices = {};

  // The only input and target; throw UsageError when there are more or none.
  const at::Tensor& input() const;
  const at::Tensor& target() const;  // likewise
};

// What a data set holds; enough to choose and size a model for it.
struct DatasetInfo {
  std::string kind;                       // "text", "idx", "cifar10", "cifar100", "csv", ...
  std::string source;                     // the path it was opened from
  std::vector<std::int64_t> input_shape;  // of one sample: {context}, {channels, height, width}, {features}
                                          // or for BERT {3, context}
  std::int64_t classes = 0;               // classes, or the size of the vocabulary
  std::int64_t targets_per_sample = 1;    // predictions that one sample asks for: the context length for text
  std::vector<std::string> class_names =
      {};  // csv, labelled_text: what the file calls the classes; else empty
  // What throughput counts: "tokens" or "samples". A sample has targets_per_sample tokens.
  std::string unit = "samples";
  std::int64_t vocabulary = 0;  // labelled_text, masked_text: the tokenizer's tokens
  // csv, regression: with which every feature was brought to mean 0 and deviation 1.
  std::vector<double> mean = {};
  std::vector<double> deviation = {};  // likewise

  // The part of a model's configuration (make_model) that the data decides: {"context", "vocabulary"} for
  // text, {"vocabulary"} and for labelled_text {"classes"} for BERT's kinds, {"input_shape", "classes"} for
  // everything else; of numbers, "classes" are the targets of a sample.
  nlohmann::json model_config() const;
};

// Samples that can be read in any order. Every method may be called from any thread at any time.
class Dataset {
 public:
  virtual ~Dataset() = default;
  // Number of samples.
  virtual std::int64_t size() const = 0;
  // The samples at `indices`, in that order; an index may occur twice. Tensors are new and on the CPU. Throws
  // UsageError for an index outside [0, size()).
  virtual Batch get(std::span<const std::int64_t> indices) const = 0;
  // The same as they are in `epoch`, for data that changes from one to the next (masked_text hides other
  // tokens).
  virtual Batch get_at_epoch(std::span<const std::int64_t> indices, std::int64_t /*epoch*/) const {
    return get(indices);
  }
  virtual const DatasetInfo& info() const = 0;  // what the samples are
};

// Throws UsageError that names the first of `indices` outside [0, size).
void check_indices(std::span<const std::int64_t> indices, std::int64_t size);

// Samples in memory: rows of tensors, of any dtypes and as many inputs and targets as the model and the loss
// function take.
class TensorDataset : public Dataset {
 public:
  // Row i of every tensor belongs to sample i. `classes` is 0 where targets are none. Throws UsageError when
  // there is no input, or tensors have different numbers of rows.
  TensorDataset(std::vector<at::Tensor> inputs, std::vector<at::Tensor> targets, std::int64_t classes = 0);

  std::int64_t size() const override { return inputs_.front().size(0); }
  Batch get(std::span<const std::int64_t> indices) const override;
  const DatasetInfo& info() const override { return info_; }

 private:
  std::vector<at::Tensor> inputs_, targets_;
  DatasetInfo info_;
};

}  // namespace rondo
