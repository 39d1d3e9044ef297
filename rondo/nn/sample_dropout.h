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

// Which samples a forward pass computes on, in terms that do not depend on how samples are spread over ranks.
struct SampleInfo {
  std::uint64_t seed = 0;                  // of the training
  std::uint64_t step = 0;                  // optimizer steps done before
  std::vector<std::int64_t> indices = {};  // of each row of the batch: its sample's number in the data set
  // What this rank's gradients of the step count in the combined gradient, in any unit that all ranks share:
  // LocalBatch::samples.
  double weight = 1;
  // What a loss that a module adds by itself is multiplied with before its backward pass: as much as the mean
  // loss of the batch is, for its share of the step and the scaling of gradients.
  double loss_scale = 1;
};

// Tells the modules that this thread calls while the object lives which samples they see: SampleDropout draws
// by them, SyncBatchNorm weighs by them. The trainer makes one around the forward and backward pass of each
// batch; a loop of one's own does the same:
//
//   const rondo::SampleScope scope({.seed = seed, .step = step, .indices = batch.indices});
//   loss_function(model->forward(batch.input), batch.target).mean.backward();
//
// Scopes nest; the innermost counts. Whatever repeats a forward pass on another thread (autograd's, to
// compute activations again) takes current() in the first pass and makes a scope of it around the second.
class SampleScope {
 public:
  explicit SampleScope(SampleInfo info);  // until the object ends, on this thread
  // For what current() gave elsewhere; null is no scope.
  explicit SampleScope(std::shared_ptr<const SampleInfo> info);
  ~SampleScope();
  SampleScope(const SampleScope&) = delete;
  SampleScope& operator=(const SampleScope&) = delete;

  // The innermost scope's on this thread; null outside of any.
  static std::shared_ptr<const SampleInfo> current();

 private:
  std::shared_ptr<const SampleInfo> outer_;
};

// The key of the random numbers behind a dropout mask.
struct DropoutKey {
  std::uint64_t seed = 0;    // of the training
  std::uint64_t step = 0;    // optimizer steps done before
  std::uint64_t module = 0;  // hash of the module's name
};

// Writes the dropout mask of one sample from its value number `first` on: value number i is 0 with the given
// probability (in steps of 2^-32), else 1 / (1 - probability). It is a function of the arguments and of i
// alone: Philox4x32-10 with a key made of (seed, step, module) and a counter made of (sample, i). Any thread.
void fill_dropout_mask(const DropoutKey& key, std::int64_t sample, double probability,
                       std::span<float> values, std::int64_t first = 0);

// Dropout whose mask does not depend on how samples are spread over ranks, micro-batches or strategies:
// inside a SampleScope what a sample loses is a function of (seed, step, this module's name, the sample's
// number in the data set), so N ranks drop, bit for bit, what one process drops on the joint batch, and a
// pass that is computed again drops the same. Outside of a scope it draws from libtorch's default generator,
// as torch::nn::Dropout does.
//
// Input of any shape whose first dimension is the samples, in the order of SampleInfo::indices; another
// number of rows is a UsageError. Rows of one sample have to have the same length in all layouts. A module
// that is called twice in a pass draws the same mask twice.
class SampleDropoutImpl : public torch::nn::Cloneable<SampleDropoutImpl>, public ParallelLayer {
 public:
  // Throws UsageError for a probability outside [0, 1).
  explicit SampleDropoutImpl(double probability = 0.5);
  void reset() override {}  // nothing to reset: there are no parameters
  // `input` with elements set to zero and the others scaled by 1 / (1 - probability), of the same shape and
  // dtype.
  at::Tensor forward(const at::Tensor& input);
  double probability() const { return probability_; }  // that an element is set to zero
  // Whether forward() changes anything now: in training, with a probability above 0.
  bool active() const { return is_training() && probability_ > 0; }

  // Tells this module from the others of its model.
  void set_name(std::string name);
  // From now on a row of the input is parts[0], parts[1], ... of `of` equal parts of a sample's whole row,
  // and loses what those lose.
  void set_parts(std::vector<std::int64_t> parts, std::int64_t of);
  // Of the mask of a row [heads, length, length] the square [row, row + size) x [column, column + size) of
  // each head: float32 [samples, heads, size, size]. `heads` are this rank's (set_parts).
  at::Tensor square_mask(const SampleInfo& info, std::int64_t heads, std::int64_t length, std::int64_t row,
                         std::int64_t column, std::int64_t size) const;
  // This rank's part of the heads, or with a divided sequence of the sequence.
  void divide(ParallelStyle style, Division& division, const std::string& path) override;

 private:
  std::vector<std::int64_t> parts_ = {0};
  std::int64_t parts_of_ = 1;
  double probability_;
  std::string name_;
  std::uint64_t name_hash_;
};
TORCH_MODULE(SampleDropout);

// Names every SampleDropout inside `model` by its path in it. Without a name of its own two dropouts draw
// alike. make_model and Trainer call it; call it for a model that neither of them sees.
void name_sample_dropouts(const torch::nn::Module& model);

}  // namespace rondo
