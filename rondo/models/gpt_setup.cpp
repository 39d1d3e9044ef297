#include <algorithm>
#include <filesystem>
#include <map>

#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"
#include "rondo/models/gpt_config.h"
#include "rondo/models/gpt_options.h"
#include "rondo/models/model_setup.h"

namespace rondo {
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

  // Its context is at most the positions of --from-pretrained's model, and that model's tokenizer reads the
  // text where it knows more than bytes.
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

  // With --from-pretrained the data's context is a part of the model's.
  nlohmann::json config(const nlohmann::json& of_data, const nlohmann::json& settings,
                        const std::string& source) const override {
    if (options_.init.empty()) return ModelSetup::config(of_data, settings, source);
    const GptConfig pretrained = gpt_config_of_folder(options_.init);
    const auto vocabulary = of_data.at("vocabulary").get<std::int64_t>();
    // A model may have room for more tokens than a tokenizer has; bytes are no other tokenizer's.
    if (vocabulary > pretrained.vocabulary || (vocabulary == kBytes && vocabulary != pretrained.vocabulary)) {
      throw UsageError(str("--data ", source, " has ", vocabulary,
                           " different tokens, the model of --from-pretrained ", options_.init, " knows ",
                           pretrained.vocabulary));
    }
    nlohmann::json config = gpt_model_config(pretrained);
    nlohmann::json own = settings;
    own.erase("context");  // of the data
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
      // 25,547,776 parameters: the model of the benchmarks.
      {"gpt-25m", {.context = 128, .layers = 8, .heads = 8, .width = 512}},
      // Small enough to learn something in seconds on two slow cores.
      {"gpt-tiny", {.context = 64, .layers = 4, .heads = 4, .width = 128}}};
  return gpt_model_config(sizes.at(name));
}

std::unique_ptr<ModelSetup> GptFamily::setup(const Options& options) {
  return std::make_unique<GptSetup>(options);
}

}  // namespace rondo
