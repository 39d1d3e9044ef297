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

// Sizes of a GPT.
struct GptConfig {
  std::int64_t vocabulary = 256;  // number of tokens; 256: bytes
  std::int64_t context = 128;     // maximum sequence length
  std::int64_t layers = 8;        // transformer blocks
  std::int64_t heads = 8;         // attention heads in each block
  std::int64_t width = 512;       // width of hidden states; a multiple of `heads`
  double dropout = 0.0;           // probability for embeddings, attention and residuals
  bool tied_head = false;         // whether the output layer shares the token embedding's weight, as in GPT-2
  // Number of experts. Above 0 a mixture of experts, each as large as the perceptron, replaces the perceptron
  // in each block.
  std::int64_t experts = 0;
  std::int64_t experts_per_token = 1;  // see ExpertsConfig
  double capacity_factor = 1.25;       // see ExpertsConfig
  double balance_loss = 0.01;          // see ExpertsConfig
};

// Throws UsageError naming the invalid value.
void check(const GptConfig& config);

// Multi-head attention in which a position sees itself and earlier ones. Shape [samples, length, width].
class CausalSelfAttentionImpl : public torch::nn::Module, public ParallelLayer {
 public:
  // Constructs the attention of one block.
  explicit CausalSelfAttentionImpl(const GptConfig& config);
  at::Tensor forward(const at::Tensor& input);  // [samples, length, width] to the same shape
  // Divides the layer among ranks by heads.
  void divide(ParallelStyle style, Division& division, const std::string& path) override;
  // Declares that inputs are this rank's pieces of the sequence.
  void divide_context(const Group& group) { context_ = group; }

 private:
  Group context_;
  std::int64_t heads_, head_size_;
  ParallelLinear c_attn_{nullptr}, c_proj_{nullptr};
  SampleDropout attention_dropout_{nullptr}, residual_dropout_{nullptr};
};
TORCH_MODULE(CausalSelfAttention);

// A block's two-layer perceptron, with four times the width inside.
class GptMlpImpl : public torch::nn::Module {
 public:
  // Constructs the perceptron of one block.
  explicit GptMlpImpl(const GptConfig& config);
  at::Tensor forward(const at::Tensor& input);  // [samples, length, width] to the same shape

 private:
  ParallelLinear c_fc_{nullptr}, c_proj_{nullptr};
  SampleDropout residual_dropout_{nullptr};
};
TORCH_MODULE(GptMlp);

// One pre-layer-norm transformer block: x + attention(norm(x)), then x + mlp(norm(x)), where the mlp may be a
// mixture of experts. Each block is a unit.
class GptBlockImpl : public torch::nn::Module {
 public:
  // All blocks have the same shape.
  explicit GptBlockImpl(const GptConfig& config);
  at::Tensor forward(const at::Tensor& input);  // [samples, length, width] to the same shape

 private:
  ParallelLayerNorm ln_1_{nullptr}, ln_2_{nullptr};
  CausalSelfAttention attn_{nullptr};
  GptMlp mlp_{nullptr};  // null with experts
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
  // Throws UsageError for invalid values, such as a width that is not a multiple of the heads.
  explicit GptImpl(const GptConfig& config = {});
  // Maps int64 tokens [samples, length] to logits [samples, length, vocabulary]. Throws UsageError if length
  // > context.
  at::Tensor forward(const at::Tensor& tokens);
  const GptConfig& config() const { return config_; }  // configuration of the model
  // Returns "embeddings", the blocks and "head". A tied head uses the weight of the embeddings.
  std::vector<ModelLayer> layers() override;
  // Divides by heads, by the inner widths of perceptrons and experts, and by vocabulary.
  ParallelRules parallel_rules(bool sequence) const override;
  void divide_context(const Group& group) override;  // experts then route whole samples

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

// A GPT in Hugging Face's GPT-2 folders: config.json and the names of model.safetensors.

// Returns the architecture of a config.json. Throws DataError naming an entry that is missing or unsupported
// (another model type or activation, cross attention); `source` names the file in the message.
GptConfig gpt_config_from(const nlohmann::json& config, const std::string& source);

// Returns the config.json with which Hugging Face's transformers open the model.
nlohmann::ordered_json hugging_face_config(const GptConfig& config);

// Returns the name in this model of a tensor in a file: files of the bare transformer omit "transformer.".
std::string gpt_tensor_name(const std::string& name_in_file);

// Returns whether GPT-2's files hold the weight of this name as [in, out], while nn::Linear has [out, in].
bool is_transposed_in_gpt2(const std::string& name);

// Returns whether a tensor of a file is no weight: the causal masks of old files.
bool is_mask_in_gpt2(const std::string& name_in_file);

// Returns `config` as make_model("gpt", ...) takes it.
nlohmann::json gpt_model_config(const GptConfig& config);

}  // namespace rondo
