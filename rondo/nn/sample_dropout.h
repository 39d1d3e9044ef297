#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rondo/nn/parallel_style.h"

namespace rondo {

// The samples that a forward pass computes on, in terms that do not depend on how samples are distributed
// over ranks.
struct SampleInfo {
  std::uint64_t seed = 0;                  // seed of the training
  std::uint64_t step = 0;                  // optimizer steps done before
  std::vector<std::int64_t> indices = {};  // index in the data set of each row's sample
  // Weight of this rank's gradients of the step in the combined gradient, in any unit that all ranks share:
  // LocalBatch::samples.
  double weight = 1;
  // Factor for a loss that a module adds by itself, before its backward pass. It equals the factor of the
  // batch's mean loss: its share of the step times the gradient scale.
  double loss_scale = 1;
};

// A scope that identifies the samples of a forward pass for modules called by this thread: SampleDropout
// draws by them, SyncBatchNorm weights by them. The trainer opens a scope around the forward and backward
// pass of each batch; a custom loop does the same:
//
//   const rondo::SampleScope scope({.seed = seed, .step = step, .indices = batch.indices});
//   loss_function(model->forward(batch.input), batch.target).mean.backward();
//
// Scopes nest; the innermost one applies. Code that repeats a forward pass on another thread (such as
// autograd's, to recompute activations) saves current() in the first pass and opens a scope with it around
// the second.
class SampleScope {
 public:
  explicit SampleScope(SampleInfo info);  // applies to this thread until the object ends
  // Reopens a scope with the value of current() on another thread; null means no scope.
  explicit SampleScope(std::shared_ptr<const SampleInfo> info);
  ~SampleScope();
  SampleScope(const SampleScope&) = delete;
  SampleScope& operator=(const SampleScope&) = delete;

  // Returns the innermost scope's samples on this thread; null outside any scope.
  static std::shared_ptr<const SampleInfo> current();

 private:
  std::shared_ptr<const SampleInfo> outer_;
};

// The key of the random numbers of a dropout mask.
struct DropoutKey {
  std::uint64_t seed = 0;    // seed of the training
  std::uint64_t step = 0;    // optimizer steps done before
  std::uint64_t module = 0;  // hash of the module's name
};

// Writes the dropout mask of one sample, starting at value `first`. Value i is 0 with the given probability
// (in steps of 2^-32), else 1 / (1 - probability). It depends on the arguments and on i only: Philox4x32-10
// with a key of (seed, step, module) and a counter of (sample, i). Any thread.
void fill_dropout_mask(const DropoutKey& key, std::int64_t sample, double probability,
                       std::span<float> values, std::int64_t first = 0);

// Dropout whose mask does not depend on how samples are distributed over ranks, micro-batches or strategies.
// Inside a SampleScope the mask of a sample is a function of (seed, step, this module's name, the sample's
// index in the data set). So N ranks drop the same elements, bit for bit, as one process with the joint
// batch, and a recomputed pass drops the same. Outside a scope it draws from libtorch's default generator, as
// torch::nn::Dropout does.
//
// The input has any shape whose first dimension is the samples, in the order of SampleInfo::indices; another
// number of rows is a UsageError. Rows of one sample must have the same length in all layouts. A module that
// is called twice in a pass draws the same mask twice.
class SampleDropoutImpl : public torch::nn::Cloneable<SampleDropoutImpl>, public ParallelLayer {
 public:
  // Throws UsageError for a probability outside [0, 1).
  explicit SampleDropoutImpl(double probability = 0.5);
  void reset() override {}  // no parameters to reset
  // Returns `input` with elements set to zero and the others scaled by 1 / (1 - probability); same shape and
  // dtype.
  at::Tensor forward(const at::Tensor& input);
  double probability() const { return probability_; }  // probability that an element is set to zero
  // Returns whether forward() changes its input now: in training, with a probability above 0.
  bool active() const { return is_training() && probability_ > 0; }

  // Sets the name that distinguishes this module from the others of its model.
  void set_name(std::string name);
  // Declares that a row of the input consists of parts[0], parts[1], ... of `of` equal parts of a sample's
  // whole row; the row uses the mask of those parts.
  void set_parts(std::vector<std::int64_t> parts, std::int64_t of);
  // Returns a square of the mask of rows [heads, length, length]: [row, row + size) x [column, column + size)
  // of each head, float32 [samples, heads, size, size]. `heads` are this rank's (set_parts).
  at::Tensor square_mask(const SampleInfo& info, std::int64_t heads, std::int64_t length, std::int64_t row,
                         std::int64_t column, std::int64_t size) const;
  // Restricts the mask to this rank's heads, or to its part of a divided sequence.
  void divide(ParallelStyle style, Division& division, const std::string& path) override;

 private:
  std::vector<std::int64_t> parts_ = {0};
  std::int64_t parts_of_ = 1;
  double probability_;
  std::string name_;
  std::uint64_t name_hash_;
};
TORCH_MODULE(SampleDropout);

// Names every SampleDropout inside `model` by its path in it. Two dropouts without names draw the same mask.
// make_model and Trainer call it; call it for other models.
void name_sample_dropouts(const torch::nn::Module& model);

}  // namespace rondo
