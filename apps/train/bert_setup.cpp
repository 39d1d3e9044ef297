#include "apps/train/bert_setup.h"

#include <filesystem>

#include "apps/train/init_weights.h"
#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kDefaultContext = 128;

nlohmann::json read_json(const fs::path& path) {
  nlohmann::json document = read_json_file(path);
  if (!document.is_object()) throw DataError(str("--init: ", path.string(), ": expected a JSON object"));
  return document;
}

BertConfig config_of_folder(const std::string& folder) {
  const fs::path path = fs::path(folder) / "config.json";
  return bert_config_from(read_json(path), path.string());
}

// Hugging Face's tokenizer_config.json says whether the vocabulary has capitals.
bool lower_case_of_folder(const std::string& folder) {
  const fs::path path = fs::path(folder) / "tokenizer_config.json";
  if (!fs::exists(path)) return true;
  const nlohmann::json document = read_json(path);
  const auto entry = document.find("do_lower_case");
  return entry == document.end() || !entry->is_boolean() || entry->get<bool>();
}

// transformers 5 writes tokenizer.json, earlier versions vocab.txt as well.
std::string vocabulary_of_folder(const std::string& folder) {
  const fs::path text = fs::path(folder) / "vocab.txt", json = fs::path(folder) / "tokenizer.json";
  return (!fs::exists(text) && fs::exists(json) ? json : text).string();
}

}  // namespace

bool is_bert(const std::string& model) { return model.starts_with("bert"); }

std::string bert_data_kind(const TrainFlags& flags) {
  const std::string kind = flags.of_model.task == "mlm" ? "masked_text" : "labelled_text";
  if (flags.data_kind != "auto" && flags.data_kind != kind) {
    throw UsageError(str("--data-kind ", flags.data_kind, ": --model ", flags.model, " --task ",
                         flags.of_model.task.empty() ? "classify" : flags.of_model.task, " trains on ",
                         kind));
  }
  return kind;
}

DataOptions bert_data_options(const TrainFlags& flags, DataOptions options) {
  options.context = flags.of_model.context.value_or(kDefaultContext);
  options.vocabulary_file = flags.of_model.vocabulary;
  options.lower_case = !flags.of_model.cased;
  options.mask_seed = flags.seed;
  if (flags.of_model.init.empty()) return options;
  if (!fs::is_directory(flags.of_model.init)) {
    throw UsageError(str("--init ", flags.of_model.init,
                         ": expected a folder with config.json, vocab.txt and model.safetensors"));
  }
  const std::int64_t positions = config_of_folder(flags.of_model.init).positions;
  if (flags.of_model.context && *flags.of_model.context > positions) {
    throw UsageError(
        str("--context ", *flags.of_model.context, ": the model of --init has ", positions, " positions"));
  }
  options.context = std::min(options.context, positions);
  if (flags.of_model.vocabulary.empty()) options.vocabulary_file = vocabulary_of_folder(flags.of_model.init);
  options.lower_case = !flags.of_model.cased && lower_case_of_folder(flags.of_model.init);
  return options;
}

nlohmann::json bert_training_config(const TrainFlags& flags, const DatasetInfo& info,
                                    const nlohmann::json& overrides) {
  nlohmann::json config = info.model_config();
  if (!flags.of_model.init.empty()) {
    const BertConfig pretrained = config_of_folder(flags.of_model.init);
    if (info.vocabulary > pretrained.vocabulary) {
      throw UsageError(str("the vocabulary has ", info.vocabulary, " tokens, the model of --init ",
                           flags.of_model.init, " only ", pretrained.vocabulary));
    }
    nlohmann::json whole = bert_model_config(pretrained);
    if (config.contains("classes")) whole["classes"] = config["classes"];
    config = std::move(whole);
  }
  config["task"] = flags.of_model.task.empty() ? "classify" : flags.of_model.task;
  config.update(overrides);
  return config;
}

void load_bert_weights(const TrainFlags& flags, const Model& model, bool say) {
  if (flags.of_model.init.empty()) return;
  PretrainedNames names;
  names.in_model = bert_tensor_name;
  names.optional_parts = {"classifier.", "cls.", "bert.pooler."};
  names.shared = {{"cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"},
                  {"cls.predictions.decoder.bias", "cls.predictions.bias"}};
  load_init_weights(flags, model, names, say);
}

}  // namespace rondo
