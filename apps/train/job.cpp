#include "apps/train/job.h"

#include <torch/cuda.h>
#include <torch/utils.h>

#include <algorithm>

#include "apps/common/command_line.h"
#include "apps/train/bert_setup.h"
#include "apps/train/gpt_setup.h"
#include "apps/train/init_weights.h"
#include "rondo/base/error.h"
#include "rondo/base/regular_file.h"
#include "rondo/base/text.h"
#include "rondo/data/mixture.h"
#include "rondo/models/freeze.h"
#include "rondo/models/model_file.h"
#include "rondo/nn/wrap_rules.h"
#include "rondo/precision/dtype.h"
#include "rondo/precision/mixed_precision_policy.h"

namespace rondo {
namespace {

nlohmann::json parse_model_config(const std::string& text_or_file) {
  if (text_or_file.empty()) return nlohmann::json::object();
  if (text_or_file.front() == '{') return parse_json_flag(text_or_file, "--model-config");
  try {
    return parse_json_flag(read_regular_file(text_or_file), str("--model-config ", text_or_file));
  } catch (const DataError& error) {
    throw UsageError(str("--model-config is neither a JSON object nor a file with one: ", error.what()));
  }
}

// The options of data that were given, whichever kind takes them.
DataOptions data_options(const TrainFlags& flags) {
  DataOptions options;
  for (const Declaration& kind : declared_data_kinds()) {
    for (const auto& [name, value] : flags.options_in(kind.options))
      kind.options.find(name)->read(&options, value);
  }
  for (std::string& extension : options.extensions) {
    if (!extension.starts_with(".")) extension.insert(0, ".");
  }
  options.validation_fraction = flags.validation_fraction;
  options.split_seed = flags.seed;
  options.images.seed = flags.seed;
  return options;
}

OpenedData open_named_data(const TrainFlags& flags, const std::string& kind, const DataOptions& options) {
  if (flags.data_weights.empty()) return open_data(kind, flags.data, options);
  std::vector<double> weights;
  for (const std::string& weight : flags.data_weights)
    weights.push_back(parse_number(weight, "--data-weights"));
  return open_mixture(kind, data_paths(flags), weights, options);
}

void refuse_options_of_other_data(const TrainFlags& flags, const std::string& kind) {
  const std::vector<Declaration> kinds = declared_data_kinds();
  refuse_options_of_others(kinds, *find_declaration(kinds, kind), "data-kind", kind, flags.options);
}

void wrap_units_by_flag(const TrainFlags& flags, torch::nn::Module& module) {
  try {
    wrap_units(module, flags.unit_rules);
  } catch (const UsageError& error) {
    throw UsageError(str("--unit-rules with --model ", flags.model, ": ", error.what()));
  }
}

bool predicts_tokens(const TrainFlags& flags, const DatasetInfo& info) {
  return is_gpt(flags.model) || flags.of_model.task == "mlm" || info.unit == "tokens";
}

}  // namespace

c10::Device device_of(const std::string& name, int local_rank) {
  const bool has_cuda = torch::cuda::is_available();
  if (name == "cpu" || (name == "auto" && !has_cuda)) return c10::kCPU;
  if (!has_cuda) throw UsageError("--device cuda: libtorch sees no CUDA device; use --device cpu or auto");
  const auto count = static_cast<int>(torch::cuda::device_count());
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(local_rank % count)};
}

// The user's part of the model's configuration. (A bert may have more positions than samples are long.)
nlohmann::json model_overrides(const TrainFlags& flags) {
  nlohmann::json config = parse_model_config(flags.model_config);
  const auto set = [&](const char* key, const auto& value) {
    if (value) config[key] = *value;
  };
  set("layers", flags.of_model.layers);
  set("heads", flags.of_model.heads);
  set("width", flags.of_model.width);
  set("dropout", flags.of_model.dropout);
  if (is_bert(flags.model)) {
    set("attention_dropout", flags.of_model.dropout);
    set("classifier_dropout", flags.of_model.dropout);
  } else {
    set("context", flags.of_model.context);
    set("experts", flags.of_model.experts);
    set("experts_per_token", flags.of_model.experts_per_token);
    set("capacity_factor", flags.of_model.capacity_factor);
    set("balance_loss", flags.of_model.balance_loss);
  }
  return config;
}

OpenedData open_training_data(const TrainFlags& flags, const nlohmann::json& overrides,
                              const KnownData& known) {
  DataOptions options = data_options(flags);
  options.known = known;
  if (is_bert(flags.model)) {
    refuse_options_of_other_data(flags, bert_data_kind(flags));
    return open_named_data(flags, bert_data_kind(flags), bert_data_options(flags, options));
  }
  const nlohmann::json defaults = default_model_config(flags.model);
  if (overrides.contains("context")) {
    options.context = overrides["context"].get<std::int64_t>();
  } else if (defaults.contains("context")) {
    options.context = defaults["context"].get<std::int64_t>();
  }
  if (is_gpt(flags.model)) options = gpt_data_options(flags, std::move(options));
  OpenedData data = open_named_data(flags, flags.data_kind, options);
  const bool has_tokens = data.train->info().unit == "tokens";
  if (!model_file(flags.model) && has_tokens != is_gpt(flags.model)) {
    throw UsageError(str("--model ", flags.model, " does not train on ", data.kind, " data (", flags.data,
                         "); gpt models train on text and tokens, mlp and convnet on images and tables"));
  }
  refuse_options_of_other_data(flags, data.kind);
  return data;
}

Model make_training_model(const TrainFlags& flags, const DatasetInfo& info, const nlohmann::json& overrides,
                          int rank) {
  nlohmann::json config = info.model_config();
  config.update(overrides);
  if (is_bert(flags.model)) config = bert_training_config(flags, info, overrides);
  const bool is_pretrained_gpt = is_gpt(flags.model) && !flags.of_model.init.empty();
  if (is_pretrained_gpt) config = gpt_training_config(flags, info, overrides);
  torch::manual_seed(flags.seed);
  Model model = open_model(flags.model, config);
  if (is_pretrained_gpt) {
    load_gpt_weights(flags, model, rank == 0);
  } else {
    load_bert_weights(flags, model, rank == 0);
  }
  load_given_weights(flags, model, rank == 0);
  freeze(*model.module, flags.freeze);
  if (!flags.unit_rules.empty()) wrap_units_by_flag(flags, *model.module);
  return model;
}

std::string loss_name(const TrainFlags& flags, const DatasetInfo& info) {
  if (flags.loss != "auto") return flags.loss;
  return info.kind == "regression" ? "mse" : "cross_entropy";
}

std::vector<Metric> metrics_for(const TrainFlags& flags, const DatasetInfo& info) {
  const std::string loss = loss_name(flags, info);
  if (loss != "cross_entropy" && loss != "nll") return {loss_metric()};
  if (predicts_tokens(flags, info)) return {loss_metric(), perplexity_metric()};
  return {loss_metric(), accuracy_metric()};
}

PrecisionOptions precision_options(const TrainFlags& flags) {
  const auto knob = [](const std::string& text) -> std::optional<bool> {
    if (text == "auto") return {};
    return text == "true";
  };
  PrecisionOptions options;
  options.level = parse_opt_level(flags.amp, "--amp");
  options.dtype = parse_float_dtype(flags.amp_dtype, "--amp-dtype");
  options.keep_batchnorm_fp32 = knob(flags.keep_batchnorm_fp32);
  options.master_weights = knob(flags.master_weights);
  if (flags.loss_scale != "auto") options.loss_scale = parse_loss_scale(flags.loss_scale, "--loss-scale");
  // Gradients of float16 vanish without, whoever casts.
  const auto policy = flags.options.find("mixed-precision");
  const bool half_units =
      policy != flags.options.end() && parse_mixed_precision_policy(policy->second).param_dtype == at::kHalf;
  if (flags.loss_scale == "auto" && half_units) options.loss_scale = LossScale{.dynamic = true};
  return options;
}

}  // namespace rondo
