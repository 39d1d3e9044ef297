#include <algorithm>
#include <filesystem>
#include <map>

#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"
#include "rondo/models/bert_config.h"
#include "rondo/models/bert_options.h"
#include "rondo/models/model.h"
#include "rondo/models/model_setup.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kDefaultContext = 128;

nlohmann::json read_json_of_init(const fs::path& path) {
  nlohmann::json document = read_json_file(path);
  if (!document.is_object())
    throw DataError(str("--from-pretrained: ", path.string(), ": expected a JSON object"));
  return document;
}

BertConfig bert_config_of_folder(const std::string& folder) {
  const fs::path path = fs::path(folder) / "config.json";
  return bert_config_from(read_json_of_init(path), path.string());
}

// Hugging Face's tokenizer_config.json says whether the vocabulary has capitals.
bool lower_case_of_folder(const std::string& folder) {
  const fs::path path = fs::path(folder) / "tokenizer_config.json";
  if (!fs::exists(path)) return true;
  const nlohmann::json document = read_json_of_init(path);
  const auto entry = document.find("do_lower_case");
  return entry == document.end() || !entry->is_boolean() || entry->get<bool>();
}

// transformers 5 writes tokenizer.json, earlier versions vocab.txt as well.
std::string vocabulary_of_folder(const std::string& folder) {
  const fs::path text = fs::path(folder) / "vocab.txt", json = fs::path(folder) / "tokenizer.json";
  return (!fs::exists(text) && fs::exists(json) ? json : text).string();
}

nlohmann::json bert_settings(const BertOptions& options) {
  nlohmann::json settings = transformer_settings(options);
  if (options.dropout) settings["attention_dropout"] = settings["classifier_dropout"] = *options.dropout;
  return settings;
}

class BertSetup final : public ModelSetup {
 public:
  explicit BertSetup(const BertOptions& options)
      : ModelSetup(bert_settings(options)),
        options_(options),
        task_(options.task.empty() ? "classify" : options.task) {}

  DataNeeds data_needs(const nlohmann::json& /*config*/) const override {
    DataNeeds needs{.kind = task_ == "mlm" ? "masked_text" : "labelled_text",
                    .kind_by = "--task " + task_,
                    .context = options_.context.value_or(kDefaultContext),
                    .vocabulary_file = options_.vocabulary,
                    .lower_case = !options_.cased};
    if (options_.init.empty()) return needs;
    if (!fs::is_directory(options_.init)) {
      throw UsageError(str("--from-pretrained ", options_.init,
                           ": expected a folder with config.json, vocab.txt and model.safetensors"));
    }
    // A bert may have more positions than samples are long.
    const std::int64_t positions = bert_config_of_folder(options_.init).positions;
    if (options_.context && *options_.context > positions) {
      throw UsageError(str("--seq-len ", *options_.context, ": the model of --from-pretrained has ",
                           positions, " positions"));
    }
    needs.context = std::min(*needs.context, positions);
    if (options_.vocabulary.empty()) needs.vocabulary_file = vocabulary_of_folder(options_.init);
    needs.lower_case = !options_.cased && lower_case_of_folder(options_.init);
    return needs;
  }

  nlohmann::json config(const nlohmann::json& of_data, const nlohmann::json& settings,
                        const std::string& /*source*/) const override {
    nlohmann::json config = of_data;
    if (!options_.init.empty()) {
      const BertConfig pretrained = bert_config_of_folder(options_.init);
      const auto vocabulary = of_data.at("vocabulary").get<std::int64_t>();
      if (vocabulary > pretrained.vocabulary) {
        throw UsageError(str("the vocabulary has ", vocabulary, " tokens, the model of --from-pretrained ",
                             options_.init, " only ", pretrained.vocabulary));
      }
      nlohmann::json whole = bert_model_config(pretrained);
      if (config.contains("classes")) whole["classes"] = config["classes"];
      config = std::move(whole);
    }
    config["task"] = task_;
    config.update(settings);
    return config;
  }

  std::string init() const override { return options_.init; }

  PretrainedNames pretrained_names() const override {
    PretrainedNames names;
    names.in_model = bert_tensor_name;
    names.optional_parts = {"classifier.", "cls.", "bert.pooler."};
    names.shared = {{"cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"},
                    {"cls.predictions.decoder.bias", "cls.predictions.bias"}};
    return names;
  }

 private:
  BertOptions options_;
  std::string task_;
};

}  // namespace

nlohmann::json BertFamily::defaults(const std::string& name) {
  static const std::map<std::string, BertConfig> sizes = {
      {"bert", {}}, {"bert-tiny", {.layers = 2, .heads = 2, .width = 128, .intermediate = 512}}};
  return bert_model_config(sizes.at(name));
}

std::unique_ptr<ModelSetup> BertFamily::setup(const Options& options) {
  return std::make_unique<BertSetup>(options);
}

}  // namespace rondo
