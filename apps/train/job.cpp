#include "apps/train/job.h"

#include <torch/utils.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>

#include "apps/common/command_line.h"
#include "apps/train/flags.h"
#include "rondo/base/error.h"
#include "rondo/base/file_access.h"
#include "rondo/base/progress_line.h"
#include "rondo/base/text.h"
#include "rondo/checkpoint/pretrained.h"
#include "rondo/checkpoint/weights.h"
#include "rondo/data/mixture.h"
#include "rondo/data/open.h"
#include "rondo/models/model.h"
#include "rondo/models/model_file.h"
#include "rondo/models/model_options.h"
#include "rondo/models/model_setup.h"
#include "rondo/nn/wrap.h"
#include "rondo/precision/options.h"

namespace rondo {
namespace {

// Loads weights from model.safetensors in `folder`, the value of --from-pretrained; `names` maps its tensors
// to the model's. With `say` it prints new and unused tensors. Throws DataError if the folder has no such
// file, and as load_pretrained().
void load_init_weights(const std::string& folder, const Model& model, const PretrainedNames& names,
                       bool say) {
  const std::optional<std::filesystem::path> file = weights_in_folder(folder);
  if (!file) {
    throw DataError(str("--from-pretrained ", folder,
                        " has no model.safetensors and no model.safetensors.index.json; in Python: "
                        "model.save_pretrained(FOLDER, safe_serialization=True)"));
  }
  const PretrainedReport report = load_pretrained(*file, named_tensors(*model.module), names);
  if (!say) return;
  if (!report.missing_parts.empty())
    print_message(str("newly initialised, not in ", file->string(), ": ", join(report.missing_parts, " ")));
  if (!report.unused.empty())
    print_message(str("not used of ", file->string(), ": ", join(report.unused, " ")));
}

// Applies --init-from by the rules of init-rename; does nothing without that flag. With `say` it prints the
// tensors that --init-strict=false left unchanged. Throws UsageError for an invalid rule, DataError as
// load_weights() and load_partial_weights().
void load_given_weights(const TrainFlags& flags, const Model& model, bool say) {
  const bool is_partial = !flags.init_rename.empty() || !flags.init_strict;
  if (flags.init_weights.empty()) {
    if (is_partial)
      throw UsageError("init-rename and --init-strict=false have no effect without --init-from");
    return;
  }
  const NamedTensors tensors = named_tensors(*model.module);
  if (!is_partial) {
    load_weights(flags.init_weights, tensors);
    return;
  }
  std::vector<RenameRule> rules;
  for (const std::string& text : flags.init_rename)
    rules.push_back(use_flag("init-rename", text, [&] { return parse_rename_rule(text); }));
  const WeightsReport report = load_partial_weights(flags.init_weights, tensors, rules, !flags.init_strict);
  if (say) print_message(str(flags.init_weights, ": ", to_text(report)));
}

nlohmann::json parse_model_config(const std::string& text_or_file) {
  if (text_or_file.empty()) return nlohmann::json::object();
  if (text_or_file.front() == '{') return parse_json_flag(text_or_file, "--model-config");
  try {
    return parse_json_flag(read_regular_file(text_or_file), str("--model-config ", text_or_file));
  } catch (const DataError& error) {
    throw UsageError(str("--model-config is neither a JSON object nor a file with one: ", error.what()));
  }
}

// Returns the built-in model that learns from data of this kind in reasonable time; empty if there is none.
std::string model_for(const std::string& kind) {
  static const std::map<std::string, std::string> models = {
      {"cifar10", "convnet"},       {"cifar100", "convnet"},     {"csv", "mlp"},
      {"idx", "convnet"},           {"image_folder", "convnet"}, {"labelled_text", "bert-tiny"},
      {"masked_text", "bert-tiny"}, {"regression", "mlp"},       {"text", "gpt-tiny"},
      {"tokens", "gpt-tiny"},       {"webdataset", "convnet"}};
  const auto found = models.find(kind);
  return found == models.end() ? std::string() : found->second;
}

// Returns the kind of data to open, which the model may determine.
std::string data_kind_for(const TrainFlags& flags, const DataNeeds& needs) {
  if (needs.kind.empty()) return flags.data_kind;
  if (flags.data_kind == "auto" || flags.data_kind == needs.kind) return needs.kind;
  throw UsageError(str("--data-kind ", flags.data_kind, ": --model ", flags.model, " ", needs.kind_by,
                       " trains on ", needs.kind));
}

// Returns the given options of data, of any kind, and those that the model requires.
DataOptions data_options(const TrainFlags& flags, const DataNeeds& needs) {
  OptionValues values = flags.options;
  values.insert(needs.options.begin(), needs.options.end());
  DataOptions options;
  options.of_kind = read_kind_options(values);
  options.validation_fraction = flags.validation_fraction;
  options.split_seed = flags.seed;
  options.seed = flags.seed;
  options.context = needs.context.value_or(options.context);
  options.vocabulary_file = needs.vocabulary_file;
  options.lower_case = needs.lower_case;
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

// Returns the model's options that describe a training.
std::unique_ptr<ModelSetup> setup_of(const TrainFlags& flags) {
  return model_setup(flags.model, flags.options);
}

}  // namespace

void choose_model(TrainFlags& flags, bool say) {
  if (flags.model != "auto") return;
  const std::string path = data_paths(flags).front();
  const std::string kind = find_data_kind(flags.data_kind, path);
  const std::string model = model_for(kind);
  if (model.empty()) {
    throw UsageError(str("--model auto knows no model for ", kind, " data (", path, "); give --model ",
                         list_with_or(model_names())));
  }
  const std::vector<Declaration> models = declared_models();
  refuse_options_of_others(models, *find_declaration(models, model), "model", model, flags.options);
  flags.model = model;
  flags.configuration["model"] = model;
  if (kind == "masked_text" && flags.options.emplace("task", "mlm").second)
    flags.configuration["task"] = "mlm";
  if (say) print_message(str("--model auto: ", model, ", for ", kind, " data (", path, ")"));
}

nlohmann::json model_overrides(const TrainFlags& flags) {
  nlohmann::json config = parse_model_config(flags.model_config);
  config.update(setup_of(flags)->settings());
  return config;
}

OpenedData open_training_data(const TrainFlags& flags, const nlohmann::json& overrides,
                              const KnownData& known) {
  nlohmann::json config = default_model_config(flags.model);
  config.update(overrides);
  const DataNeeds needs = setup_of(flags)->data_needs(config);
  const std::string kind = data_kind_for(flags, needs);
  if (!needs.kind.empty()) refuse_options_of_other_data(flags, kind);
  DataOptions options = data_options(flags, needs);
  options.known = known;
  OpenedData data = open_named_data(flags, kind, options);
  if (const std::string& unit = data.train->info().unit; !needs.unit.empty() && unit != needs.unit) {
    throw UsageError(str("--model ", flags.model, " does not train on ", data.kind, " data (", flags.data,
                         "); for that give --model ", list_with_or(models_for(unit))));
  }
  refuse_options_of_other_data(flags, data.kind);
  return data;
}

Model make_training_model(const TrainFlags& flags, const DatasetInfo& info, const nlohmann::json& overrides,
                          int rank) {
  const std::unique_ptr<ModelSetup> setup = setup_of(flags);
  const nlohmann::json config = setup->config(info.model_config(), overrides, info.source);
  torch::manual_seed(flags.seed);
  Model model = open_model(flags.model, config);
  if (const std::string folder = setup->init(); !folder.empty())
    load_init_weights(folder, model, setup->pretrained_names(), rank == 0);
  load_given_weights(flags, model, rank == 0);
  use_flag("--freeze", join(flags.freeze, ","), [&] { return freeze(*model.module, flags.freeze); });
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
  const bool predicts_tokens = info.unit == "tokens" || info.targets_per_sample > 1;
  if (predicts_tokens) return {loss_metric(), perplexity_metric()};
  return {loss_metric(), accuracy_metric()};
}

PrecisionOptions precision_options(const TrainFlags& flags) {
  const auto knob = [](const std::string& text) -> std::optional<bool> {
    if (text == "auto") return {};
    return text == "true";
  };
  PrecisionOptions options;
  options.level = parse_opt_level(flags.amp, "--precision");
  options.dtype = parse_float_dtype(flags.amp_dtype, "--amp-dtype");
  options.keep_batchnorm_fp32 = knob(flags.keep_batchnorm_fp32);
  options.master_weights = knob(flags.master_weights);
  if (flags.loss_scale != "auto") options.loss_scale = parse_loss_scale(flags.loss_scale, "--loss-scale");
  // Gradients of float16 vanish without loss scaling, whether autocast or a policy causes them.
  const auto policy = flags.options.find("mixed-precision");
  const bool half_units =
      policy != flags.options.end() && parse_mixed_precision_policy(policy->second).param_dtype == at::kHalf;
  if (flags.loss_scale == "auto" && half_units) options.loss_scale = LossScale{.dynamic = true};
  return options;
}

}  // namespace rondo
