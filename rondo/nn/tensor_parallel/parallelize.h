#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/normalization.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "rondo/nn/linear.h"
#include "rondo/nn/parallel_style.h"

namespace rondo {

// libtorch's layers that can be divided among ranks (parallelize). Until then, and on one rank, they are
// libtorch's, with its names, values and options.

// nn::Linear by outputs (column, gathered_column, vocabulary) or by inputs (row). Megatron's
// ColumnParallelLinear and RowParallelLinear. Inputs and outputs as libtorch's, [..., features], of which a
// divided side has this rank's part.
class ParallelLinearImpl : public nn::LinearImpl, public ParallelLayer {
 public:
  using nn::LinearImpl::LinearImpl;
  // The outputs are so many equal blocks, each of which is divided: 3 where one layer makes query, key and
  // value.
  ParallelLinearImpl(const torch::nn::LinearOptions& options, std::int64_t blocks)
      : LinearImpl(options), blocks_(blocks) {}
  // Of the same tensors.
  explicit ParallelLinearImpl(const torch::nn::LinearImpl& other) : LinearImpl(other) {}

  at::Tensor forward(const at::Tensor& input);  // [..., inputs] to [..., outputs]
  // Its weight and bias become this rank's part.
  void divide(ParallelStyle style, Division& division, const std::string& path) override;
  // A layer of the same type and division with tensors of its own, on `device` where one is given.
  std::shared_ptr<torch::nn::Module> clone(const std::optional<c10::Device>& device = {}) const override;

 private:
  std::int64_t blocks_ = 1;
  std::optional<ParallelStyle> style_;  // once divided
  bool sequence_ = false;
  Group group_;
};
TORCH_MODULE(ParallelLinear);

// torch::nn::Embedding by tokens (vocabulary): each rank looks up those that it has, and the rows are added;
// or whole and of a part of the sequence (sequence), where first_rows() gives this rank's part.
class ParallelEmbeddingImpl : public torch::nn::EmbeddingImpl, public ParallelLayer {
 public:
  using torch::nn::EmbeddingImpl::EmbeddingImpl;
  // Of the same tensors.
  explicit ParallelEmbeddingImpl(const torch::nn::EmbeddingImpl& other) : EmbeddingImpl(other) {}

  at::Tensor forward(const at::Tensor& tokens);  // int64 of any shape to [..., width]
  // The rows of tokens 0 to length - 1: [length, width], with a divided sequence this rank's part of them.
  at::Tensor first_rows(std::int64_t length);
  // The transposed embedding as an output layer, tied to it: [..., width] to logits [..., vocabulary], of
  // which every rank has a part. `bias` is that part's, or undefined.
  at::Tensor logits(const at::Tensor& input, const at::Tensor& bias = {});
  // Its weight becomes this rank's rows, by vocabulary.
  void divide(ParallelStyle style, Division& division, const std::string& path) override;
  // A layer of the same type and division with tensors of its own, on `device` where one is given.
  std::shared_ptr<torch::nn::Module> clone(const std::optional<c10::Device>& device = {}) const override;

 private:
  bool by_tokens_ = false;
  std::int64_t first_token_ = 0;  // of this rank
  bool sequence_ = false;
  Group group_;
};
TORCH_MODULE(ParallelEmbedding);

// torch::nn::LayerNorm of a part of the sequence (sequence): its parameters are whole on every rank, and
// their gradients those of all parts.
class ParallelLayerNormImpl : public torch::nn::LayerNormImpl, public ParallelLayer {
 public:
  using torch::nn::LayerNormImpl::LayerNormImpl;
  // Of the same tensors.
  explicit ParallelLayerNormImpl(const torch::nn::LayerNormImpl& other) : LayerNormImpl(other) {}

  at::Tensor forward(const at::Tensor& input);  // of any shape that ends in the normalised one, to the same
  // Its parameters stay whole.
  void divide(ParallelStyle style, Division& division, const std::string& path) override;
  // A layer of the same type and division with tensors of its own, on `device` where one is given.
  std::shared_ptr<torch::nn::Module> clone(const std::optional<c10::Device>& device = {}) const override;

 private:
  Group group_;
};
TORCH_MODULE(ParallelLayerNorm);

// Turns a model into its tensor-parallel form, in place: every rank keeps its part of the layers that `rules`
// name, and forward passes communicate over `group`.
//
//     Division division = parallelize(*model, {{{"*.up", column}, {"*.down", row}}}, tensor_group);
//
// The layers are ParallelLinear, ParallelEmbedding, ParallelLayerNorm and own ones (ParallelLayer); children
// of a torch::nn::Sequential may be torch::nn::Linear, Embedding and LayerNorm, which are exchanged.
// Parameters keep their names, and what the result has of them says where in the full ones the parts are. All
// ranks have the same values before, of which they keep their part. Call it before an optimizer or a strategy
// sees the model. Communicates nothing.
//
// Throws UsageError naming the pattern for one that fits nothing; the layer for one that cannot be divided
// so, sizes that the ranks do not divide, and a torch::nn::Dropout, which draws otherwise on every rank
// (SampleDropout does not).
Division parallelize(torch::nn::Module& model, const ParallelRules& rules, const Group& group);

// Whether a pattern of ParallelRules fits the path.
bool fits_pattern(const std::string& path, const std::string& pattern);

}  // namespace rondo
