#pragma once

#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <cstdint>

#include "rondo/nn/sample_dropout.h"
#include "rondo/nn/unit.h"

namespace rondo {

struct GptConfig {
  std::int64_t vocabulary = 256;  // bytes
  std::int64_t context = 128;     // longest sequence
  std::int64_t layers = 8;
  std::int64_t heads = 8;
  std::int64_t width = 512;
  double dropout = 0.0;
  bool tied_head = false;  // the output layer shares the token embedding's weight, as in GPT-2
};

// Multi-head attention in which a position sees itself and what came before. Shape [samples, length, width].
class CausalSelfAttentionImpl : public torch::nn::Module {
 public:
  explicit CausalSelfAttentionImpl(const GptConfig& config);
  at::Tensor forward(const at::Tensor& input);

 private:
  std::int64_t heads_;
  torch::nn::Linear c_attn_{nullptr}, c_proj_{nullptr};
  SampleDropout attention_dropout_{nullptr}, residual_dropout_{nullptr};
};
TORCH_MODULE(CausalSelfAttention);

// The block's two-layer perceptron, four times as wide inside.
class GptMlpImpl : public torch::nn::Module {
 public:
  explicit GptMlpImpl(const GptConfig& config);
  at::Tensor forward(const at::Tensor& input);

 private:
  torch::nn::Linear c_fc_{nullptr}, c_proj_{nullptr};
  SampleDropout residual_dropout_{nullptr};
};
TORCH_MODULE(GptMlp);

// One pre-layer-norm transformer block: x + attention(norm(x)), then x + mlp(norm(x)). Each is a unit.
class GptBlockImpl : public torch::nn::Module {
 public:
  explicit GptBlockImpl(const GptConfig& config);
  at::Tensor forward(const at::Tensor& input);

 private:
  torch::nn::LayerNorm ln_1_{nullptr}, ln_2_{nullptr};
  CausalSelfAttention attn_{nullptr};
  GptMlp mlp_{nullptr};
};
TORCH_MODULE(GptBlock);

// GPT-2's architecture and initialisation (Radford et al., 2019): learned positions, GELU (tanh form),
// weights normal(0, 0.02), projections into the residual stream scaled by 1/sqrt(2 layers), zero biases.
// Parameter names are GPT-2's
// ("transformer.h.0.attn.c_attn.weight"); weights are stored as torch::nn::Linear stores them, [out, in].
class GptImpl : public torch::nn::Module {
 public:
  // Throws UsageError for values that cannot be, such as a width that the heads do not divide.
  explicit GptImpl(const GptConfig& config = {});
  // int64 tokens [samples, length] -> logits [samples, length, vocabulary]; length <= context, else
  // UsageError.
  at::Tensor forward(const at::Tensor& tokens);
  const GptConfig& config() const { return config_; }

 private:
  void initialize_weights();

  GptConfig config_;
  torch::nn::Embedding wte_{nullptr}, wpe_{nullptr};
  SampleDropout dropout_{nullptr};
  torch::nn::ModuleList blocks_{nullptr};
  torch::nn::LayerNorm ln_f_{nullptr};
  torch::nn::Linear lm_head_{nullptr};
};
TORCH_MODULE(Gpt);

}  // namespace rondo
