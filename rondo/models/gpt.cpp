#include "rondo/models/gpt.h"

#include <torch/nn.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/models/attention.h"
#include "rondo/models/config_checks.h"

namespace rondo {
namespace {

void check(const GptConfig& config) {
  const auto positive = [](const char* name, std::int64_t value) { check_positive("gpt", name, value); };
  positive("vocabulary", config.vocabulary);
  positive("context", config.context);
  positive("layers", config.layers);
  positive("heads", config.heads);
  positive("width", config.width);
  check_heads("gpt", config.width, config.heads);
  check_probability("gpt", "dropout", config.dropout);
}

torch::nn::LayerNorm layer_norm(const GptConfig& config) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({config.width}));
}

}  // namespace

CausalSelfAttentionImpl::CausalSelfAttentionImpl(const GptConfig& config) : heads_(config.heads) {
  c_attn_ = register_module("c_attn", torch::nn::Linear(config.width, 3 * config.width));
  c_proj_ = register_module("c_proj", torch::nn::Linear(config.width, config.width));
  attention_dropout_ = register_module("attn_dropout", SampleDropout(config.dropout));
  residual_dropout_ = register_module("resid_dropout", SampleDropout(config.dropout));
}

at::Tensor CausalSelfAttentionImpl::forward(const at::Tensor& input) {
  const std::int64_t samples = input.size(0), length = input.size(1), width = input.size(2);
  const auto split_heads = [&](const at::Tensor& part) {
    return part.view({samples, length, heads_, width / heads_}).transpose(1, 2);
  };
  const std::vector<at::Tensor> parts = c_attn_->forward(input).split(width, 2);
  const at::Tensor mixed = attention(split_heads(parts[0]), split_heads(parts[1]), split_heads(parts[2]),
                                     /*mask=*/{}, /*causal=*/true, attention_dropout_);
  const at::Tensor joined = mixed.transpose(1, 2).reshape({samples, length, width});
  return residual_dropout_->forward(c_proj_->forward(joined));
}

GptMlpImpl::GptMlpImpl(const GptConfig& config) {
  c_fc_ = register_module("c_fc", torch::nn::Linear(config.width, 4 * config.width));
  c_proj_ = register_module("c_proj", torch::nn::Linear(4 * config.width, config.width));
  residual_dropout_ = register_module("dropout", SampleDropout(config.dropout));
}

at::Tensor GptMlpImpl::forward(const at::Tensor& input) {
  return residual_dropout_->forward(c_proj_->forward(at::gelu(c_fc_->forward(input), "tanh")));
}

GptBlockImpl::GptBlockImpl(const GptConfig& config) {
  ln_1_ = register_module("ln_1", layer_norm(config));
  attn_ = register_module("attn", CausalSelfAttention(config));
  ln_2_ = register_module("ln_2", layer_norm(config));
  mlp_ = register_module("mlp", GptMlp(config));
}

at::Tensor GptBlockImpl::forward(const at::Tensor& input) {
  const at::Tensor attended = input + attn_->forward(ln_1_->forward(input));
  return attended + mlp_->forward(ln_2_->forward(attended));
}

GptImpl::GptImpl(const GptConfig& config) : config_(config) {
  check(config);
  const auto transformer = register_module("transformer", std::make_shared<torch::nn::Module>("transformer"));
  wte_ = transformer->register_module("wte", torch::nn::Embedding(config.vocabulary, config.width));
  wpe_ = transformer->register_module("wpe", torch::nn::Embedding(config.context, config.width));
  dropout_ = transformer->register_module("drop", SampleDropout(config.dropout));
  blocks_ = transformer->register_module("h", torch::nn::ModuleList());
  for (std::int64_t i = 0; i < config.layers; ++i) blocks_->push_back(Unit<GptBlock>(config));
  ln_f_ = transformer->register_module("ln_f", layer_norm(config));
  if (!config.tied_head) {
    lm_head_ = register_module(
        "lm_head", torch::nn::Linear(torch::nn::LinearOptions(config.width, config.vocabulary).bias(false)));
  }
  initialize_weights();
}

void GptImpl::initialize_weights() {
  const torch::NoGradGuard no_grad;
  constexpr double kDeviation = 0.02;
  const double residual_deviation = kDeviation / std::sqrt(2.0 * static_cast<double>(config_.layers));
  for (auto& parameter : named_parameters()) {
    const std::string& name = parameter.key();
    at::Tensor& value = parameter.value();
    if (value.dim() == 1) continue;  // biases below; layer norms start as the identity already
    // Each block adds twice to the residual stream; the scale keeps its variance independent of the depth.
    value.normal_(0.0, name.ends_with("c_proj.weight") ? residual_deviation : kDeviation);
  }
  for (auto& module : modules(/*include_self=*/false)) {
    if (auto* linear = module->as<torch::nn::Linear>(); linear != nullptr && linear->bias.defined()) {
      linear->bias.zero_();
    }
  }
}

at::Tensor GptImpl::forward(const at::Tensor& tokens) {
  if (tokens.dim() != 2 || tokens.size(1) > config_.context) {
    throw UsageError(str("gpt: tokens of shape [", join(tokens.sizes(), ", "),
                         "], expected [samples, length] with length <= ", config_.context));
  }
  at::Tensor value = dropout_->forward(wte_->forward(tokens) + wpe_->weight.narrow(0, 0, tokens.size(1)));
  for (std::size_t i = 0; i < blocks_->size(); ++i)
    value = blocks_->at<Unit<GptBlock>::Impl>(i).forward(value);
  value = ln_f_->forward(value);
  return config_.tied_head ? at::linear(value, wte_->weight) : lm_head_->forward(value);
}

}  // namespace rondo
