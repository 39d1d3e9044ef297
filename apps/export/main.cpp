// `rondo export`: writes a trained model in other formats.
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/export.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/types.h>

#include <cstddef>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <span>

#include "apps/common/command_line.h"
#include "apps/train/trained_run.h"
#include "rondo/base/error.h"
#include "rondo/base/file_access.h"
#include "rondo/base/stage_progress.h"
#include "rondo/base/text.h"
#include "rondo/checkpoint/tensor_file.h"
#include "rondo/checkpoint/weights.h"
#include "rondo/format/file.h"
#include "rondo/models/bert.h"
#include "rondo/models/gpt.h"
#include "rondo/models/model_options.h"
#include "rondo/models/model_setup.h"
#include "rondo/models/script.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

void write_document(const fs::path& path, const Json& document) {
  write_own_file(path, document.dump(2) + "\n");
}

// File and metadata names as in transformers.
void write_weights(const fs::path& folder, const NamedTensors& tensors) {
  write_tensors(folder / "model.safetensors", tensors);
}

std::string utf8(char32_t letter) {
  if (letter < 0x80) return {static_cast<char>(letter)};
  return {static_cast<char>(0xC0 | (letter >> 6)), static_cast<char>(0x80 | (letter & 0x3F))};
}

// Returns GPT-2's letter for every byte: the byte itself if printable, else a letter from U+0100 on.
std::vector<std::string> byte_letters() {
  std::vector<std::string> letters;
  char32_t next = 256;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool printed = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    letters.push_back(utf8(printed ? byte : next++));
  }
  return letters;
}

// Returns a byte-level tokenizer without merges: token i is byte i.
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

// Returns the tokenizer.json that the run read its texts with; empty for bytes.
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

// Writes a folder for from_pretrained of Hugging Face's transformers: config.json, model.safetensors and the
// tokenizer's files. A gpt on bytes gets a tokenizer whose tokens are the bytes. Throws UsageError for a
// model that is neither gpt nor bert.
void write_hugging_face(const fs::path& folder, const Model& model, const TrainedRun& run) {
  const torch::nn::Module& module = *model.module;
  const NamedTensors tensors = named_tensors(module);
  const auto* gpt = dynamic_cast<const GptImpl*>(&module);
  const auto* classifier = dynamic_cast<const BertForSequenceClassificationImpl*>(&module);
  const auto* masked = dynamic_cast<const BertForMaskedLmImpl*>(&module);
  if (gpt == nullptr && classifier == nullptr && masked == nullptr)
    throw UsageError(str("--format huggingface supports gpt and bert models, but the run's model is ",
                         model.name, "; use torchscript or safetensors"));
  std::error_code error;
  fs::create_directories(folder, error);
  if (!fs::is_directory(folder) || !fs::is_empty(folder))
    throw UsageError(str("-o ", folder.string(), ": expected an empty or a new folder"));
  if (gpt != nullptr) {
    write_gpt(folder, *gpt, tensors, run);
  } else {
    write_bert(folder, classifier != nullptr ? classifier->config() : masked->config(), tensors, run);
  }
}

}  // namespace
}  // namespace rondo

namespace {

namespace fs = std::filesystem;

struct ExportFlags {
  rondo::RunArguments run;
  std::string output;
  std::string format;  // empty: by the name of the output
  bool overwrite = false;
  std::string json;
};

// Loads the run's original TorchScript model and sets the current weights.
torch::jit::Module script_of_file(const std::string& path, const rondo::Model& model) {
  torch::jit::Module script = rondo::load_script(path);
  rondo::prepare_assign(rondo::named_tensors(script), rondo::named_tensors(*model.module), path)();
  script.eval();
  return script;
}

struct Written {
  bool any_batch = true;     // TorchScript: accepts any number of samples
  std::int64_t samples = 2;  // otherwise this number
};

// Saves to a new file, with sync. libtorch itself would follow a symbolic link and does not sync.
void save_script(const torch::jit::Module& script, const rondo::ReplacedFile& target) {
  rondo::OutputFile file(target.temporary(), rondo::OutputFile::Mode::create, target.target());
  std::exception_ptr failure;
  try {
    torch::jit::ExportModule(script, [&](const void* data, std::size_t size) -> std::size_t {
      try {
        file.write(std::span(static_cast<const std::byte*>(data), size));
        return size;
      } catch (...) {  // libtorch would wrap the exception
        failure = std::current_exception();
        return 0;
      }
    });
  } catch (const c10::Error& error) {
    if (failure) std::rethrow_exception(failure);
    throw rondo::Error(
        rondo::str("cannot write ", target.target().string(), ": ", error.what_without_backtrace()));
  }
  file.sync();
  file.close();
}

Written write_script(const rondo::Model& model, const rondo::TrainedRun& run,
                     const rondo::ReplacedFile& target) {
  Written written;
  const auto file = rondo::model_file(run.flags.model);
  torch::jit::Module script;
  if (file && !file->is_module) {
    script = script_of_file(file->path, model);
  } else {
    const at::Tensor example = rondo::example_batch(model, written.samples).input;
    script = rondo::script_of(model, example, written.any_batch);
  }
  save_script(script, target);
  return written;
}

void check_output(const ExportFlags& flags) {
  if (flags.format == "huggingface" || flags.overwrite || !fs::exists(fs::symlink_status(flags.output)))
    return;
  throw rondo::UsageError(rondo::str("-o ", flags.output, " exists; give --overwrite to replace it"));
}

int export_run(ExportFlags flags) {
  if (flags.format.empty())
    flags.format = fs::path(flags.output).extension() == ".safetensors" ? "safetensors" : "torchscript";
  check_output(flags);
  rondo::StageProgress stage;
  stage.begin("reading the checkpoint");
  const rondo::TrainedRun run = flags.run.open(/*needs_data=*/false);
  rondo::say_average(run.is_average, run.checkpoint);
  const rondo::Model model = rondo::load_run_model(run);
  model.module->eval();
  stage.begin("writing " + flags.output);
  Written written;
  if (flags.format == "huggingface") {
    rondo::write_hugging_face(flags.output, model, run);
  } else {
    rondo::ReplacedFile file(flags.output, rondo::ReplacedFile::Links::follow);
    if (flags.format == "torchscript") {
      written = write_script(model, run, file);
    } else {
      rondo::write_tensors(file.temporary(), rondo::named_tensors(*model.module));
    }
    file.commit();
  }
  stage.end();
  if (!written.any_batch)
    std::fprintf(
        stderr, "rondo export: tracing fixed the batch size: the file accepts batches of %lld samples only\n",
        static_cast<long long>(written.samples));
  if (flags.json != "-") std::printf("%s\n", flags.output.c_str());
  rondo::write_json(flags.json, {{"run_dir", flags.run.run_dir},
                                 {"checkpoint", run.checkpoint.string()},
                                 {"step", run.step},
                                 {"model", model.name},
                                 {"format", flags.format},
                                 {"output", flags.output},
                                 {"samples", written.any_batch ? nlohmann::ordered_json()
                                                               : nlohmann::ordered_json(written.samples)}});
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  ExportFlags flags;
  CLI::App app("Exports a trained model to TorchScript, safetensors or Hugging Face's format.",
               "rondo export");
  app.footer(
      "Examples:\n"
      "  rondo export runs/digits -o model.pt                              # torch.jit.load('model.pt')(x) "
      "in "
      "Python\n"
      "  rondo export runs/digits -o weights.safetensors --format safetensors\n"
      "  rondo export runs/gpt -o folder --format huggingface              "
      "# AutoModelForCausalLM.from_pretrained('folder')");
  flags.run.add_model_flags(app);
  app.add_option("-o,--output", flags.output, "File, or for huggingface the folder, to write")->required();
  app.add_option(
         "--format", flags.format,
         "torchscript: runs without rondo; safetensors: weights; huggingface: a folder, of gpt and bert. "
         "Default: safetensors for a FILE.safetensors, else torchscript")
      ->check(CLI::IsMember({"huggingface", "safetensors", "torchscript"}));
  app.add_flag("--overwrite", flags.overwrite, "Replace a file that exists");
  app.add_option("--json", flags.json,
                 "Write a description of the result as JSON to FILE, or '-' for standard output");
  return rondo::run_command_line(app, argc, argv, [&] { return export_run(flags); });
}
