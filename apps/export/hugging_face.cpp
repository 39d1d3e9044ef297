#include "apps/export/hugging_face.h"

#include <torch/types.h>

#include "rondo/base/error.h"
#include "rondo/base/file_access.h"
#include "rondo/base/text.h"
#include "rondo/checkpoint/tensor_file.h"
#include "rondo/models/bert.h"
#include "rondo/models/gpt.h"
#include "rondo/models/model_setup.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

void write_document(const fs::path& path, const Json& document) {
  write_own_file(path, document.dump(2) + "\n");
}

// transformers' own name for the format of the weights.
void write_weights(const fs::path& folder, const NamedTensors& tensors) {
  write_tensors(folder / "model.safetensors", tensors);
}

std::string utf8(char32_t letter) {
  if (letter < 0x80) return {static_cast<char>(letter)};
  return {static_cast<char>(0xC0 | (letter >> 6)), static_cast<char>(0x80 | (letter & 0x3F))};
}

// GPT-2's letter for every byte: itself where it is printed, else one from 256 on.
std::vector<std::string> byte_letters() {
  std::vector<std::string> letters;
  char32_t next = 256;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool printed = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    letters.push_back(utf8(printed ? byte : next++));
  }
  return letters;
}

// A byte-level tokenizer without merges: token i is byte i.
Json byte_tokenizer() {
  Json vocabulary = Json::object();
  for (const std::string& letter : byte_letters()) vocabulary[letter] = vocabulary.size();
  const Json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", Json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"post_processor", nullptr},
          {"decoder", byte_level},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"vocab", vocabulary},
            {"merges", Json::array()}}}};
}

DataNeeds data_needs_of(const TrainedRun& run) {
  return model_setup(run.flags.model, run.flags.options)->data_needs(run.model_config);
}

// The tokenizer.json with which the run read its texts; empty: byte by byte.
fs::path tokenizer_of(const TrainedRun& run) {
  const auto given = run.flags.options.find("tokenizer");
  if (given != run.flags.options.end()) return given->second;
  const OptionValues own = data_needs_of(run).options;
  const auto of_folder = own.find("tokenizer");
  return of_folder == own.end() ? fs::path() : fs::path(of_folder->second);
}

void write_gpt(const fs::path& folder, const GptImpl& gpt, const NamedTensors& tensors,
               const TrainedRun& run) {
  NamedTensors weights;
  for (const NamedTensor& each : tensors) {
    weights.push_back(
        {each.name, is_transposed_in_gpt2(each.name) ? each.tensor.detach().t().contiguous() : each.tensor});
  }
  write_weights(folder, weights);
  write_document(folder / "config.json", hugging_face_config(gpt.config()));
  if (const fs::path tokenizer = tokenizer_of(run); !tokenizer.empty()) {
    write_own_file(folder / "tokenizer.json", read_regular_file(tokenizer));
  } else {
    write_document(folder / "tokenizer.json", byte_tokenizer());
  }
  write_document(folder / "tokenizer_config.json", {{"tokenizer_class", "PreTrainedTokenizerFast"}});
}

void write_bert(const fs::path& folder, const BertConfig& config, const NamedTensors& tensors,
                const TrainedRun& run) {
  write_weights(folder, tensors);
  Json document = hugging_face_config(config);
  const std::vector<std::string>& names = run.known.class_names;
  if (document.contains("id2label") && names.size() == document["id2label"].size()) {
    document["label2id"] = Json::object();
    for (std::size_t i = 0; i < names.size(); ++i) {
      document["id2label"][std::to_string(i)] = names[i];
      document["label2id"][names[i]] = i;
    }
  }
  write_document(folder / "config.json", document);
  const DataNeeds needs = data_needs_of(run);
  const fs::path vocabulary = needs.vocabulary_file;
  const bool json = vocabulary.extension() == ".json";
  write_own_file(folder / (json ? "tokenizer.json" : "vocab.txt"), read_regular_file(vocabulary));
  write_document(folder / "tokenizer_config.json",
                 {{"tokenizer_class", "BertTokenizer"}, {"do_lower_case", needs.lower_case}});
}

}  // namespace

void write_hugging_face(const fs::path& folder, const Model& model, const TrainedRun& run) {
  const torch::nn::Module& module = *model.module;
  const NamedTensors tensors = named_tensors(module);
  const auto* gpt = dynamic_cast<const GptImpl*>(&module);
  const auto* classifier = dynamic_cast<const BertForSequenceClassificationImpl*>(&module);
  const auto* masked = dynamic_cast<const BertForMaskedLmImpl*>(&module);
  if (gpt == nullptr && classifier == nullptr && masked == nullptr)
    throw UsageError(str("--format huggingface is for gpt and bert models, and the run's is ", model.name,
                         "; torchscript and safetensors are for all"));
  std::error_code error;
  fs::create_directories(folder, error);
  if (!fs::is_directory(folder) || !fs::is_empty(folder))
    throw UsageError(str("-o ", folder.string(), ": expected a folder that is empty or not there"));
  if (gpt != nullptr) {
    write_gpt(folder, *gpt, tensors, run);
  } else {
    write_bert(folder, classifier != nullptr ? classifier->config() : masked->config(), tensors, run);
  }
}

}  // namespace rondo
