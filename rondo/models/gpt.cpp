#include "rondo/models/gpt.h"

#include <torch/nn.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"
#include "rondo/models/attention.h"
#include "rondo/models/config_reader.h"
#include "rondo/models/gpt_options.h"
#include "rondo/models/model_setup.h"
#include "rondo/nn/gelu.h"
#include "rondo/nn/parallel_communication.h"

namespace rondo {
namespace {

ParallelLayerNorm layer_norm(const GptConfig& config) {
  return ParallelLayerNorm(torch::nn::LayerNormOptions({config.width}));
}

}  // namespace

void check(const GptConfig& config) {
  const auto positive = [](const char* name, std::int64_t value) { check_positive("gpt", name, value); };
  positive("vocabulary", config.vocabulary);
  positive("context", config.context);
  check_positive("gpt", "layers", config.layers, kMostParts);
  positive("heads", config.heads);
  positive("width", config.width);
  check_heads("gpt", config.width, config.heads);
  check_probability("gpt", "dropout", config.dropout);
  if (config.experts < 0 || config.experts > kMostParts)
    throw UsageError(str("gpt: experts is ", config.experts, ", expected 0 (none) to ", kMostParts));
}

CausalSelfAttentionImpl::CausalSelfAttentionImpl(const GptConfig& config)
    : heads_(config.heads), head_size_(config.width / config.heads) {
  c_attn_ = register_module(
      "c_attn", ParallelLinear(torch::nn::LinearOptions(config.width, 3 * config.width), /*blocks=*/3));
  c_proj_ = register_module("c_proj", ParallelLinear(config.width, config.width));
  attention_dropout_ = register_module("attn_dropout", SampleDropout(config.dropout));
  residual_dropout_ = register_module("resid_dropout", SampleDropout(config.dropout));
}

void CausalSelfAttentionImpl::divide(ParallelStyle style, Division& division, const std::string& path) {
  if (style != ParallelStyle::heads)
    throw UsageError(str("'", path, "' is an attention, which is divided by heads, not by ", to_text(style)));
  division.share(heads_, path, "heads");
  c_attn_->divide(ParallelStyle::column, division, path + ".c_attn");
  c_proj_->divide(ParallelStyle::row, division, path + ".c_proj");
  attention_dropout_->divide(ParallelStyle::heads, division, path + ".attn_dropout");
}

at::Tensor CausalSelfAttentionImpl::forward(const at::Tensor& input) {
  // Projection for this rank's heads.
  const at::Tensor projected = c_attn_->forward(input);
  const std::int64_t samples = projected.size(0), length = projected.size(1), width = projected.size(2) / 3;
  const auto split_heads = [&](const at::Tensor& part) {
    return part.view({samples, length, width / head_size_, head_size_}).transpose(1, 2);
  };
  const std::vector<at::Tensor> parts = projected.split(width, 2);
  const at::Tensor query = split_heads(parts[0]), key = split_heads(parts[1]), value = split_heads(parts[2]);
  const at::Tensor mixed =
      has_peers(context_) ? ring_attention(query, key, value, /*causal=*/true, context_, attention_dropout_)
                          : attention(query, key, value, /*mask=*/{}, /*causal=*/true, attention_dropout_);
  const at::Tensor joined = mixed.transpose(1, 2).reshape({samples, length, width});
  return residual_dropout_->forward(c_proj_->forward(joined));
}

GptMlpImpl::GptMlpImpl(const GptConfig& config) {
  c_fc_ = register_module("c_fc", ParallelLinear(config.width, 4 * config.width));
  c_proj_ = register_module("c_proj", ParallelLinear(4 * config.width, config.width));
  residual_dropout_ = register_module("dropout", SampleDropout(config.dropout));
}

at::Tensor GptMlpImpl::forward(const at::Tensor& input) {
  return residual_dropout_->forward(c_proj_->forward(nn::gelu_tanh(c_fc_->forward(input))));
}

GptBlockImpl::GptBlockImpl(const GptConfig& config) {
  ln_1_ = register_module("ln_1", layer_norm(config));
  attn_ = register_module("attn", CausalSelfAttention(config));
  ln_2_ = register_module("ln_2", layer_norm(config));
  if (config.experts == 0) {
    mlp_ = register_module("mlp", GptMlp(config));
    return;
  }
  experts_ = register_module("mlp", MixtureOfExperts(ExpertsConfig{.width = config.width,
                                                                   .inner = 4 * config.width,
                                                                   .experts = config.experts,
                                                                   .per_token = config.experts_per_token,
                                                                   .capacity_factor = config.capacity_factor,
                                                                   .balance_loss = config.balance_loss}));
  experts_dropout_ = register_module("mlp_dropout", SampleDropout(config.dropout));
}

at::Tensor GptBlockImpl::forward(const at::Tensor& input) {
  const at::Tensor attended = input + attn_->forward(ln_1_->forward(input));
  const at::Tensor normalised = ln_2_->forward(attended);
  if (mlp_) return attended + mlp_->forward(normalised);
  return attended + experts_dropout_->forward(experts_->forward(normalised));
}

GptImpl::GptImpl(const GptConfig& config) : config_(config) {
  check(config);
  const auto transformer = register_module("transformer", std::make_shared<torch::nn::Module>("transformer"));
  wte_ = transformer->register_module("wte", ParallelEmbedding(config.vocabulary, config.width));
  wpe_ = transformer->register_module("wpe", ParallelEmbedding(config.context, config.width));
  dropout_ = transformer->register_module("drop", SampleDropout(config.dropout));
  blocks_ = transformer->register_module("h", torch::nn::ModuleList());
  for (std::int64_t i = 0; i < config.layers; ++i) blocks_->push_back(Unit<GptBlock>(config));
  ln_f_ = transformer->register_module("ln_f", layer_norm(config));
  if (!config.tied_head) {
    lm_head_ = register_module(
        "lm_head", ParallelLinear(torch::nn::LinearOptions(config.width, config.vocabulary).bias(false)));
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
    if (value.dim() == 1) continue;  // biases follow below; layer norms are already the identity
    if (name.ends_with(".bias")) {   // biases of experts
      value.zero_();
      continue;
    }
    // Each block adds twice to the residual stream; the scale keeps its variance independent of the depth.
    const bool residual = name.ends_with("c_proj.weight") || name.ends_with("experts.down.weight");
    value.normal_(0.0, residual ? residual_deviation : kDeviation);
  }
  for (auto& module : modules(/*include_self=*/false)) {
    if (auto* linear = module->as<torch::nn::Linear>(); linear != nullptr && linear->bias.defined()) {
      linear->bias.zero_();
    }
  }
}

at::Tensor GptImpl::embed(const at::Tensor& tokens) {
  const std::int64_t parts = has_peers(context_) ? context_.size() : 1;
  if (tokens.dim() != 2 || tokens.size(1) * parts > config_.context) {
    throw UsageError(str("gpt: tokens of shape [", join(tokens.sizes(), ", "),
                         "], expected [samples, length] with length <= ", config_.context / parts));
  }
  const at::Tensor positions = own_sequence(wpe_->first_rows(tokens.size(1) * parts), 0, context_);
  return dropout_->forward(wte_->forward(tokens) + positions);
}

at::Tensor GptImpl::predict(const at::Tensor& hidden) {
  const at::Tensor value = ln_f_->forward(hidden);
  return config_.tied_head ? wte_->logits(value) : lm_head_->forward(value);
}

void GptImpl::divide_context(const Group& group) {
  if (!has_peers(group)) return;
  context_ = group;
  for (const auto& entry : named_modules("", /*include_self=*/false)) {
    if (auto* attention = entry.value()->as<CausalSelfAttentionImpl>()) attention->divide_context(group);
    if (auto* experts = entry.value()->as<MixtureOfExpertsImpl>()) experts->divide_context(group);
    auto* dropout = entry.value()->as<SampleDropoutImpl>();
    if (dropout != nullptr && !entry.key().ends_with(".attn_dropout"))
      dropout->set_parts(sequence_pieces(group.rank(), group.size()), 2 * group.size());
  }
}

ParallelRules GptImpl::parallel_rules(bool sequence) const {
  if (sequence && config_.experts > 0)
    throw UsageError(
        str("gpt: ", config_.experts, " experts see whole sequences, which sequence-parallel divides"));
  ParallelRules rules{.rules = {{"transformer.wte", ParallelStyle::vocabulary},
                                {"transformer.wpe", ParallelStyle::sequence},
                                {"transformer.drop", ParallelStyle::sequence},
                                {"transformer.h.*.ln_*", ParallelStyle::sequence},
                                {"transformer.h.*.attn", ParallelStyle::heads},
                                {"transformer.h.*.attn.resid_dropout", ParallelStyle::sequence},
                                {"transformer.ln_f", ParallelStyle::sequence}},
                      .sequence = sequence,
                      .divided_outputs = config_.tied_head};
  if (config_.experts > 0) {
    rules.rules.push_back({"transformer.h.*.mlp.experts", ParallelStyle::column});
  } else {
    rules.rules.push_back({"transformer.h.*.mlp.c_fc", ParallelStyle::column});
    rules.rules.push_back({"transformer.h.*.mlp.c_proj", ParallelStyle::row});
    rules.rules.push_back({"transformer.h.*.mlp.dropout", ParallelStyle::sequence});
  }
  if (!config_.tied_head) rules.rules.push_back({"lm_head", ParallelStyle::vocabulary});
  return rules;
}

at::Tensor GptImpl::forward(const at::Tensor& tokens) {
  at::Tensor value = embed(tokens);
  for (const std::shared_ptr<torch::nn::Module>& block : *blocks_)
    value = block->as<Unit<GptBlock>::Impl>()->forward(value);
  return predict(value);
}

std::vector<ModelLayer> GptImpl::layers() {
  std::vector<ModelLayer> layers = {make_layer("embeddings", {wte_.ptr(), wpe_.ptr(), dropout_.ptr()},
                                               [this](const at::Tensor& tokens) { return embed(tokens); })};
  for (std::size_t i = 0; i < blocks_->size(); ++i) {
    const auto block = blocks_->ptr<Unit<GptBlock>::Impl>(i);
    layers.push_back(make_layer(str("transformer.h.", i), {block},
                                [block](const at::Tensor& hidden) { return block->forward(hidden); }));
  }
  layers.push_back(make_layer(
      "head", {ln_f_.ptr(), config_.tied_head ? nullptr : lm_head_.ptr()},
      [this](const at::Tensor& hidden) { return predict(hidden); },
      config_.tied_head ? Tensors{wte_->weight} : Tensors{}));
  return layers;
}

BuiltModel GptFamily::make(const ConfigReader& config) {
  return built(std::make_shared<GptImpl>(GptConfig{.vocabulary = config.positive("vocabulary"),
                                                   .context = config.positive("context"),
                                                   .layers = config.positive("layers", kMostParts),
                                                   .heads = config.positive("heads"),
                                                   .width = config.positive("width"),
                                                   .dropout = config.number("dropout"),
                                                   .tied_head = config.boolean("tied_head"),
                                                   .experts = config.whole("experts", 0, kMostParts),
                                                   .experts_per_token = config.positive("experts_per_token"),
                                                   .capacity_factor = config.number("capacity_factor"),
                                                   .balance_loss = config.number("balance_loss")}));
}

GptConfig gpt_config_from(const nlohmann::json& config, const std::string& source) {
  const ConfigEntries entries(config, source);
  entries.require("model_type", "gpt2");
  entries.require("activation_function", "gelu_new");
  entries.require("layer_norm_epsilon", 1e-5);
  entries.require("scale_attn_weights", true);
  entries.require("scale_attn_by_inverse_layer_idx", false);
  entries.require("add_cross_attention", false);
  GptConfig result;
  result.vocabulary = entries.integer("vocab_size");
  result.context = entries.integer("n_positions");
  result.layers = entries.integer("n_layer");
  result.heads = entries.integer("n_head");
  result.width = entries.integer("n_embd");
  entries.require("n_inner", 4 * result.width);
  result.dropout = entries.number("resid_pdrop", 0.1);
  result.tied_head = !config.contains("tie_word_embeddings") || config.at("tie_word_embeddings") == true;
  try {
    check(result);
  } catch (const UsageError& error) {
    throw DataError(str(source, ": ", error.what()));
  }
  return result;
}

nlohmann::ordered_json hugging_face_config(const GptConfig& config) {
  return {{"model_type", "gpt2"},
          {"architectures", {"GPT2LMHeadModel"}},
          {"vocab_size", config.vocabulary},
          {"n_positions", config.context},
          {"n_ctx", config.context},
          {"n_embd", config.width},
          {"n_layer", config.layers},
          {"n_head", config.heads},
          {"activation_function", "gelu_new"},
          {"layer_norm_epsilon", 1e-5},
          {"resid_pdrop", config.dropout},
          {"embd_pdrop", config.dropout},
          {"attn_pdrop", config.dropout},
          {"tie_word_embeddings", config.tied_head},
          {"bos_token_id", nullptr},
          {"eos_token_id", nullptr}};
}

std::string gpt_tensor_name(const std::string& name_in_file) {
  if (name_in_file.starts_with("transformer.") || name_in_file.starts_with("lm_head.")) return name_in_file;
  return "transformer." + name_in_file;
}

bool is_transposed_in_gpt2(const std::string& name) {
  return name.ends_with(".c_attn.weight") || name.ends_with(".c_proj.weight") ||
         name.ends_with(".c_fc.weight");
}

bool is_mask_in_gpt2(const std::string& name_in_file) {
  return name_in_file.ends_with(".attn.bias") || name_in_file.ends_with(".attn.masked_bias");
}

nlohmann::json gpt_model_config(const GptConfig& config) {
  return {{"vocabulary", config.vocabulary},
          {"context", config.context},
          {"layers", config.layers},
          {"heads", config.heads},
          {"width", config.width},
          {"dropout", config.dropout},
          {"tied_head", config.tied_head},
          {"experts", config.experts},
          {"experts_per_token", config.experts_per_token},
          {"capacity_factor", config.capacity_factor},
          {"balance_loss", config.balance_loss}};
}

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kBytes = 256;  // the vocabulary of texts read byte by byte

GptConfig gpt_config_of_folder(const std::string& folder) {
  if (!fs::is_directory(folder))
    throw UsageError(
        str("--from-pretrained ", folder, ": expected a folder with config.json and model.safetensors"));
  const fs::path path = fs::path(folder) / "config.json";
  return gpt_config_from(read_json_file(path), path.string());
}

nlohmann::json gpt_settings(const GptOptions& options) {
  nlohmann::json settings = transformer_settings(options);
  if (options.context) settings["context"] = *options.context;
  if (options.experts) settings["experts"] = *options.experts;
  if (options.experts_per_token) settings["experts_per_token"] = *options.experts_per_token;
  if (options.capacity_factor) settings["capacity_factor"] = *options.capacity_factor;
  if (options.balance_loss) settings["balance_loss"] = *options.balance_loss;
  return settings;
}

class GptSetup final : public ModelSetup {
 public:
  explicit GptSetup(const GptOptions& options)
      : ModelSetup(gpt_settings(options), "tokens"), options_(options) {}

  // Limits the context to the positions of --from-pretrained's model, and uses that model's tokenizer if its
  // vocabulary is not bytes.
  DataNeeds data_needs(const nlohmann::json& config) const override {
    DataNeeds needs = ModelSetup::data_needs(config);
    if (options_.init.empty()) return needs;
    const GptConfig pretrained = gpt_config_of_folder(options_.init);
    if (options_.context && *needs.context > pretrained.context) {
      throw UsageError(str("--seq-len ", *needs.context, ": the model of --from-pretrained has ",
                           pretrained.context, " positions"));
    }
    needs.context = std::min(*needs.context, pretrained.context);
    const fs::path tokenizer = fs::path(options_.init) / "tokenizer.json";
    if (pretrained.vocabulary != kBytes && fs::exists(tokenizer))
      needs.options["tokenizer"] = tokenizer.string();
    return needs;
  }

  // With --from-pretrained the data's context may be shorter than the model's.
  nlohmann::json config(const nlohmann::json& of_data, const nlohmann::json& settings,
                        const std::string& source) const override {
    if (options_.init.empty()) return ModelSetup::config(of_data, settings, source);
    const GptConfig pretrained = gpt_config_of_folder(options_.init);
    const auto vocabulary = of_data.at("vocabulary").get<std::int64_t>();
    // A model may have more tokens than the tokenizer; byte values are not tokens of another tokenizer.
    if (vocabulary > pretrained.vocabulary || (vocabulary == kBytes && vocabulary != pretrained.vocabulary)) {
      throw UsageError(str("--data ", source, " has ", vocabulary,
                           " different tokens, the model of --from-pretrained ", options_.init, " knows ",
                           pretrained.vocabulary));
    }
    nlohmann::json config = gpt_model_config(pretrained);
    nlohmann::json own = settings;
    own.erase("context");  // belongs to the data
    config.update(own);
    return config;
  }

  std::string init() const override { return options_.init; }

  PretrainedNames pretrained_names() const override {
    PretrainedNames names;
    names.in_model = gpt_tensor_name;
    names.is_ignored = is_mask_in_gpt2;
    names.is_transposed = is_transposed_in_gpt2;
    if (!options_.init.empty() && gpt_config_of_folder(options_.init).tied_head)
      names.shared = {{"lm_head.weight", "transformer.wte.weight"}};
    return names;
  }

 private:
  GptOptions options_;
};

}  // namespace

nlohmann::json GptFamily::defaults(const std::string& name) {
  static const std::map<std::string, GptConfig> sizes = {
      {"gpt", {}},
      // The model of the benchmarks: 25,547,776 parameters.
      {"gpt-25m", {.context = 128, .layers = 8, .heads = 8, .width = 512}},
      // Small enough to learn in seconds on two slow cores.
      {"gpt-tiny", {.context = 64, .layers = 4, .heads = 4, .width = 128}}};
  return gpt_model_config(sizes.at(name));
}

std::unique_ptr<ModelSetup> GptFamily::setup(const Options& options) {
  return std::make_unique<GptSetup>(options);
}

}  // namespace rondo
