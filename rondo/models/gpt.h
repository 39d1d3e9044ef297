#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/container/modulelist.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "rondo/nn/experts/mixture_of_experts.h"
#include "rondo/nn/layers.h"
#include "rondo/nn/sample_dropout.h"
#include "rondo/nn/tensor_parallel/parallelize.h"
#include "rondo/nn/tensor_parallel/ring_attention.h"
#include "rondo/nn/unit.h"

namespace rondo {

// The size of a GPT.
struct GptConfig {
  std::int64_t vocabulary = 256;  // bytes
  std::int64_t context = 128;     // longest sequence
  std::int64_t layers = 8;        // transformer blocks
  std::int64_t heads = 8;         // of attention, in each block
  std::int64_t width = 512;       // of hidden states; heads divide it
  double dropout = 0.0;           // of embeddings, attention and residuals
  bool tied_head = false;         // the output layer shares the token embedding's weight, as in GPT-2
  // Above 0 each block has a mixture of so many experts, each as large as its perceptron, in place of it.
  std::int64_t experts = 0;
  std::int64_t experts_per_token = 1;  // see ExpertsConfig
  double capacity_factor = 1.25;       // see ExpertsConfig
  double balance_loss = 0.01;          // see ExpertsConfig
};

// Throws UsageError naming the value that cannot be.
void check(const GptConfig& config);

// Multi-head attention in which a position sees itself and what came before. Shape [samples, length, width].
class CausalSelfAttentionImpl : public torch::nn::Module, public ParallelLayer {
 public:
  // Of one block.
  explicit CausalSelfAttentionImpl(const GptConfig& config);
  at::Tensor forward(const at::Tensor& input);  // [samples, length, width] to the same shape
  // Among ranks by heads.
  void divide(ParallelStyle style, Division& division, const std::string& path) override;
  // From now on the input is of this rank's pieces of the sequence.
  void divide_context(const Group& group) { context_ = group; }

 private:
  Group context_;
  std::int64_t heads_, head_size_;
  ParallelLinear c_attn_{nullptr}, c_proj_{nullptr};
  SampleDropout attention_dropout_{nullptr}, residual_dropout_{nullptr};
};
TORCH_MODULE(CausalSelfAttention);

// The block's two-layer perceptron, four times as wide inside.
class GptMlpImpl : public torch::nn::Module {
 public:
  // Of one block.
  explicit GptMlpImpl(const GptConfig& config);
  at::Tensor forward(const at::Tensor& input);  // [samples, length, width] to the same shape

 private:
  ParallelLinear c_fc_{nullptr}, c_proj_{nullptr};
  SampleDropout residual_dropout_{nullptr};
};
TORCH_MODULE(GptMlp);

// One pre-layer-norm transformer block: x + attention(norm(x)), then x + mlp(norm(x)), where the mlp may be a
// mixture of experts. Each is a unit.
class GptBlockImpl : public torch::nn::Module {
 public:
  // All blocks have the same shape.
  explicit GptBlockImpl(const GptConfig& config);
  at::Tensor forward(const at::Tensor& input);  // [samples, length, width] to the same shape

 private:
  ParallelLayerNorm ln_1_{nullptr}, ln_2_{nullptr};
  CausalSelfAttention attn_{nullptr};
  GptMlp mlp_{nullptr};  // one of the two
  MixtureOfExperts experts_{nullptr};
  SampleDropout experts_dropout_{nullptr};
};
TORCH_MODULE(GptBlock);

// GPT-2's architecture and initialisation (Radford et al., 2019): learned positions, GELU (tanh form),
// weights normal(0, 0.02), projections into the residual stream scaled by 1/sqrt(2 layers), zero biases.
// Parameter names are GPT-2's
// ("transformer.h.0.attn.c_attn.weight"); weights are stored as nn::Linear stores them, [out, in].
class GptImpl : public torch::nn::Module,
                public LayerSequence,
                public ParallelModel,
                public ContextParallelModel {
 public:
  // Throws UsageError for values that cannot be, such as a width that the heads do not divide.
  explicit GptImpl(const GptConfig& config = {});
  // int64 tokens [samples, length] -> logits [samples, length, vocabulary]; length <= context, else
  // UsageError.
  at::Tensor forward(const at::Tensor& tokens);
  const GptConfig& config() const { return config_; }  // what it was made of
  // "embeddings", the blocks and "head", which uses the embeddings' weight where it is tied.
  std::vector<ModelLayer> layers() override;
  // By heads, by the inner widths of perceptrons and experts, and by vocabulary.
  ParallelRules parallel_rules(bool sequence) const override;
  void divide_context(const Group& group) override;  // throws UsageError with experts

 private:
  void initialize_weights();
  at::Tensor embed(const at::Tensor& tokens);    // [samples, length] to [samples, length, width]
  at::Tensor predict(const at::Tensor& hidden);  // [samples, length, width] to logits

  GptConfig config_;
  Group context_;  // ranks that divide the sequence
  ParallelEmbedding wte_{nullptr}, wpe_{nullptr};
  SampleDropout dropout_{nullptr};
  torch::nn::ModuleList blocks_{nullptr};
  ParallelLayerNorm ln_f_{nullptr};
  ParallelLinear lm_head_{nullptr};
};
TORCH_MODULE(Gpt);

// A GPT in Hugging Face's folders of GPT-2: config.json and the names of model.safetensors.

// The architecture that a config.json describes. Throws DataError naming the entry that is missing or that
// this GPT cannot do (another model type or activation, cross attention); `source` names the file in it.
GptConfig gpt_config_from(const nlohmann::json& config, const std::string& source);

// The config.json with which Hugging Face's transformers open the model.
nlohmann::ordered_json hugging_face_config(const GptConfig& config);

// The name in this model of a tensor in a file: files of the bare transformer leave out "transformer.".
std::string gpt_tensor_name(const std::string& name_in_file);

// Whether GPT-2's files hold the weight of this name as [in, out], where an nn::Linear has [out, in].
bool is_transposed_in_gpt2(const std::string& name);

// Whether a tensor of a file is no weight: the causal masks of old files.
bool is_mask_in_gpt2(const std::string& name_in_file);

// `config` as make_model("gpt", ...) takes it.
nlohmann::json gpt_model_config(const GptConfig& config);

}  // namespace rondo
