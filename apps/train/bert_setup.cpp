#include "apps/train/bert_setup.h"

#include <filesystem>
#include <fstream>
#include <iostream>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/checkpoint/pretrained.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kDefaultContext = 128;

nlohmann::json read_json(const fs::path& path) {
  std::ifstream file(path);
  if (!file) throw DataError(str("--init: ", path.string(), ": ", errno_text(errno)));
  nlohmann::json document = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
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

void check_bert_flags(const TrainFlags& flags) {
  if (is_bert(flags.model)) return;
  const auto refuse = [&](const char* flag, bool given) {
    if (given) throw UsageError(str("--", flag, " is for bert models, not for --model ", flags.model));
  };
  refuse("task", !flags.task.empty());
  refuse("init", !flags.init.empty());
  refuse("vocabulary", !flags.vocabulary.empty());
  refuse("cased", flags.cased);
}

std::string bert_data_kind(const TrainFlags& flags) {
  const std::string kind = flags.task == "mlm" ? "masked_text" : "labelled_text";
  if (flags.data_kind != "auto" && flags.data_kind != kind) {
    throw UsageError(str("--data-kind ", flags.data_kind, ": --model ", flags.model, " --task ",
                         flags.task.empty() ? "classify" : flags.task, " trains on ", kind));
  }
  return kind;
}

DataOptions bert_data_options(const TrainFlags& flags, DataOptions options) {
  options.context = flags.context.value_or(kDefaultContext);
  options.vocabulary_file = flags.vocabulary;
  options.lower_case = !flags.cased;
  options.mask_seed = flags.seed;
  if (flags.init.empty()) return options;
  if (!fs::is_directory(flags.init)) {
    throw UsageError(
        str("--init ", flags.init, ": expected a folder with config.json, vocab.txt and model.safetensors"));
  }
  const std::int64_t positions = config_of_folder(flags.init).positions;
  if (flags.context && *flags.context > positions) {
    throw UsageError(
        str("--context ", *flags.context, ": the model of --init has ", positions, " positions"));
  }
  options.context = std::min(options.context, positions);
  if (flags.vocabulary.empty()) options.vocabulary_file = vocabulary_of_folder(flags.init);
  options.lower_case = !flags.cased && lower_case_of_folder(flags.init);
  return options;
}

nlohmann::json bert_training_config(const TrainFlags& flags, const DatasetInfo& info,
                                    const nlohmann::json& overrides) {
  nlohmann::json config = info.model_config();
  if (!flags.init.empty()) {
    const BertConfig pretrained = config_of_folder(flags.init);
    if (info.vocabulary > pretrained.vocabulary) {
      throw UsageError(str("the vocabulary has ", info.vocabulary, " tokens, the model of --init ",
                           flags.init, " only ", pretrained.vocabulary));
    }
    nlohmann::json whole = bert_model_config(pretrained);
    if (config.contains("classes")) whole["classes"] = config["classes"];
    config = std::move(whole);
  }
  config["task"] = flags.task.empty() ? "classify" : flags.task;
  config.update(overrides);
  return config;
}

void load_bert_weights(const TrainFlags& flags, const Model& model, bool say) {
  if (flags.init.empty()) return;
  const fs::path file = fs::path(flags.init) / "model.safetensors";
  if (!fs::exists(file)) {
    throw DataError(str("--init ", flags.init,
                        " has no model.safetensors; in Python: "
                        "model.save_pretrained(FOLDER, safe_serialization=True)"));
  }
  PretrainedNames names;
  names.in_model = bert_tensor_name;
  names.optional_parts = {"classifier.", "cls.", "bert.pooler."};
  names.shared = {{"cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"},
                  {"cls.predictions.decoder.bias", "cls.predictions.bias"}};
  const PretrainedReport report = load_pretrained(file, named_tensors(*model.module), names);
  if (!say) return;
  if (!report.missing_parts.empty()) {
    std::cerr << "newly initialised, not in " << file.string() << ": " << join(report.missing_parts, " ")
              << "\n";
  }
  if (!report.unused.empty()) {
    std::cerr << "not used of " << file.string() << ": " << join(report.unused, " ") << "\n";
  }
}

}  // namespace rondo
