#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <string>
#include <vector>

#include "rondo/nn/parallel_style.h"

namespace rondo {

struct SampleInfo;

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
