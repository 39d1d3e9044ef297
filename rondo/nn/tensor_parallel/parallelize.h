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

// libtorch's layers that can be divided among ranks (parallelize). Before that, and on one rank, they behave
// as libtorch's, with the same names, values and options.

// nn::Linear divided by outputs (column, gathered_column, vocabulary) or by inputs (row): Megatron's
// ColumnParallelLinear and RowParallelLinear. Inputs and outputs are libtorch's, [..., features]; a divided
// side has this rank's part.
class ParallelLinearImpl : public nn::LinearImpl, public ParallelLayer {
 public:
  using nn::LinearImpl::LinearImpl;
  // Declares that the outputs are `blocks` equal blocks, each of which is divided: 3 if one layer computes
  // query, key and value.
  ParallelLinearImpl(const torch::nn::LinearOptions& options, std::int64_t blocks)
      : LinearImpl(options), blocks_(blocks) {}
  // Shares the tensors of `other`.
  explicit ParallelLinearImpl(const torch::nn::LinearImpl& other) : LinearImpl(other) {}

  at::Tensor forward(const at::Tensor& input);  // [..., inputs] to [..., outputs]
  // Reduces weight and bias to this rank's part.
  void divide(ParallelStyle style, Division& division, const std::string& path) override;
  // Returns a copy of the layer, divided in the same way, with separate tensors, on `device` if given.
  std::shared_ptr<torch::nn::Module> clone(const std::optional<c10::Device>& device = {}) const override;

 private:
  std::int64_t blocks_ = 1;
  std::optional<ParallelStyle> style_;  // set once divided
  bool sequence_ = false;
  Group group_;
};
TORCH_MODULE(ParallelLinear);

// torch::nn::Embedding divided by tokens (vocabulary): each rank looks up its own tokens, and the rows are
// summed. With style `sequence` the layer is not divided: every rank has it for its part of the sequence,
// whose rows first_rows() returns.
class ParallelEmbeddingImpl : public torch::nn::EmbeddingImpl, public ParallelLayer {
 public:
  using torch::nn::EmbeddingImpl::EmbeddingImpl;
  // Shares the tensors of `other`.
  explicit ParallelEmbeddingImpl(const torch::nn::EmbeddingImpl& other) : EmbeddingImpl(other) {}

  at::Tensor forward(const at::Tensor& tokens);  // int64 of any shape to [..., width]
  // Returns the rows of tokens 0 to length - 1: [length, width], or this rank's part of them for a divided
  // sequence.
  at::Tensor first_rows(std::int64_t length);
  // Applies the transposed embedding as a tied output layer: [..., width] to logits [..., vocabulary], of
  // which every rank has a part. `bias` is that part's, or undefined.
  at::Tensor logits(const at::Tensor& input, const at::Tensor& bias = {});
  // Reduces the weight to this rank's rows for style vocabulary.
  void divide(ParallelStyle style, Division& division, const std::string& path) override;
  // Returns a copy of the layer, divided in the same way, with separate tensors, on `device` if given.
  std::shared_ptr<torch::nn::Module> clone(const std::optional<c10::Device>& device = {}) const override;

 private:
  bool by_tokens_ = false;
  std::int64_t first_token_ = 0;  // first token of this rank
  bool sequence_ = false;
  Group group_;
};
TORCH_MODULE(ParallelEmbedding);

// torch::nn::LayerNorm for a part of the sequence (sequence): its parameters are whole on every rank, and
// their gradients are summed over all parts.
class ParallelLayerNormImpl : public torch::nn::LayerNormImpl, public ParallelLayer {
 public:
  using torch::nn::LayerNormImpl::LayerNormImpl;
  // Shares the tensors of `other`.
  explicit ParallelLayerNormImpl(const torch::nn::LayerNormImpl& other) : LayerNormImpl(other) {}

  at::Tensor forward(const at::Tensor& input);  // any shape that ends in the normalised one, to the same
  // Leaves the parameters whole.
  void divide(ParallelStyle style, Division& division, const std::string& path) override;
  // Returns a copy of the layer, divided in the same way, with separate tensors, on `device` if given.
  std::shared_ptr<torch::nn::Module> clone(const std::optional<c10::Device>& device = {}) const override;

 private:
  Group group_;
};
TORCH_MODULE(ParallelLayerNorm);

// Converts a model to its tensor-parallel form in place: every rank keeps its part of the layers that `rules`
// name, and forward passes communicate over `group`.
//
//     Division division = parallelize(*model, {{{"*.up", column}, {"*.down", row}}}, tensor_group);
//
// The layers are ParallelLinear, ParallelEmbedding, ParallelLayerNorm and custom ones (ParallelLayer).
// Children of a torch::nn::Sequential may be torch::nn::Linear, Embedding and LayerNorm, which are replaced.
// Parameters keep their names; the result maps them to their addresses in the full parameters. All ranks must
// have the same values before; each keeps its part. Call it before an optimizer or a strategy is given the
// model. Does not communicate.
//
// Throws UsageError for a pattern that matches nothing, naming it, and for a layer that does not support its
// style or whose sizes the number of ranks does not divide. Also throws for a torch::nn::Dropout, which draws
// differently on every rank (SampleDropout does not).
Division parallelize(torch::nn::Module& model, const ParallelRules& rules, const Group& group);

// Returns whether a pattern of ParallelRules matches the path.
bool fits_pattern(const std::string& path, const std::string& pattern);

}  // namespace rondo
