#include "rondo/nn/tensor_parallel/layers.h"

#include <torch/types.h>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/nn/clone_derived.h"
#include "rondo/nn/parallel_communication.h"

namespace rondo {
namespace {

constexpr std::int64_t kSequence = 1;  // the dimension of [samples, length, width]

[[noreturn]] void refuse_style(const std::string& path, const char* layer, ParallelStyle style,
                               const char* styles) {
  throw UsageError(
      str("'", path, "' is a ", layer, ", which has no style ", to_text(style), "; it has ", styles));
}

// What every rank needs of the input of a layer whose outputs are divided.
at::Tensor whole_input(const at::Tensor& input, bool sequence, const Group& group) {
  return sequence ? all_gather_parts(input, kSequence, group) : copy_to_ranks(input, group);
}

at::Tensor summed_output(const at::Tensor& output, bool sequence, const Group& group) {
  return sequence ? reduce_scatter_parts(output, kSequence, group) : sum_over_ranks(output, group);
}

}  // namespace

void ParallelLinearImpl::divide(ParallelStyle style, Division& division, const std::string& path) {
  switch (style) {
    case ParallelStyle::column:
    case ParallelStyle::gathered_column:
    case ParallelStyle::vocabulary:
      if (style == ParallelStyle::gathered_column && blocks_ > 1)
        throw UsageError(
            str("'", path, "' has outputs in ", blocks_, " blocks, which are not gathered in order"));
      division.cut(weight, 0, path, blocks_);
      if (bias.defined()) division.cut(bias, 0, path, blocks_);
      if (style == ParallelStyle::vocabulary) division.divide_outputs();
      break;
    case ParallelStyle::row:
      division.cut(weight, 1, path);
      break;
    default:
      refuse_style(path, "linear layer", style, "column, gathered_column, vocabulary and row");
  }
  style_ = style;
  sequence_ = division.sequence();
  group_ = division.group();
}

std::shared_ptr<torch::nn::Module> ParallelLinearImpl::clone(const std::optional<c10::Device>& device) const {
  return clone_derived<torch::nn::LinearImpl>(*this, device);
}

at::Tensor ParallelLinearImpl::forward(const at::Tensor& input) {
  if (!style_) return LinearImpl::forward(input);
  if (*style_ == ParallelStyle::row) {
    // The bias once, and not on every rank.
    at::Tensor sum = summed_output(at::linear(input, weight), sequence_, group_);
    if (!bias.defined()) return sum;
    return sum + (sequence_ ? copy_to_ranks(bias, group_) : bias);
  }
  const at::Tensor output = at::linear(whole_input(input, sequence_, group_), weight, bias);
  return *style_ == ParallelStyle::gathered_column ? gather_from_ranks(output, output.dim() - 1, group_)
                                                   : output;
}

void ParallelEmbeddingImpl::divide(ParallelStyle style, Division& division, const std::string& path) {
  if (style != ParallelStyle::vocabulary && style != ParallelStyle::sequence)
    refuse_style(path, "embedding", style, "vocabulary and sequence");
  if (options.max_norm() || options.scale_grad_by_freq())
    throw UsageError(str("'", path, "' has max_norm or scale_grad_by_freq, with which it cannot be divided"));
  if (style == ParallelStyle::vocabulary) {
    division.cut(weight, 0, path);
    by_tokens_ = has_peers(division.group());
    first_token_ = division.group().rank() * weight.size(0);
  }
  sequence_ = division.sequence();
  group_ = division.group();
}

std::shared_ptr<torch::nn::Module> ParallelEmbeddingImpl::clone(
    const std::optional<c10::Device>& device) const {
  return clone_derived<torch::nn::EmbeddingImpl>(*this, device);
}

at::Tensor ParallelEmbeddingImpl::forward(const at::Tensor& tokens) {
  if (!by_tokens_) return EmbeddingImpl::forward(tokens);
  const at::Tensor own = tokens - first_token_;
  const at::Tensor others = own.lt(0).logical_or(own.ge(weight.size(0)));
  std::int64_t padding = options.padding_idx().value_or(-1) - first_token_;
  if (!options.padding_idx() || padding < 0 || padding >= weight.size(0)) padding = -1;
  const at::Tensor rows = at::embedding(weight, own.masked_fill(others, 0), padding,
                                        /*scale_grad_by_freq=*/false, options.sparse());
  return summed_output(rows.masked_fill(others.unsqueeze(-1), 0), sequence_, group_);
}

at::Tensor ParallelEmbeddingImpl::first_rows(std::int64_t length) {
  const at::Tensor rows = weight.narrow(0, 0, length);
  return sequence_ ? own_part(rows, 0, group_) : rows;
}

at::Tensor ParallelEmbeddingImpl::logits(const at::Tensor& input, const at::Tensor& bias) {
  return at::linear(whole_input(input, sequence_, group_), weight, bias);
}

void ParallelLayerNormImpl::divide(ParallelStyle style, Division& division, const std::string& path) {
  if (style != ParallelStyle::sequence) refuse_style(path, "layer norm", style, "sequence");
  if (division.sequence()) group_ = division.group();
}

std::shared_ptr<torch::nn::Module> ParallelLayerNormImpl::clone(
    const std::optional<c10::Device>& device) const {
  return clone_derived<torch::nn::LayerNormImpl>(*this, device);
}

at::Tensor ParallelLayerNormImpl::forward(const at::Tensor& input) {
  if (!has_peers(group_) || !weight.defined()) return LayerNormImpl::forward(input);
  const at::IntArrayRef shape = options.normalized_shape();
  if (!bias.defined()) return at::layer_norm(input, shape, copy_to_ranks(weight, group_), {}, options.eps());
  // One message for both gradients.
  const at::Tensor both = copy_to_ranks(at::stack({weight, bias}), group_);
  return at::layer_norm(input, shape, both[0], both[1], options.eps());
}

}  // namespace rondo
