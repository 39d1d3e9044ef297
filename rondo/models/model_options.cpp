#include "rondo/models/model_options.h"

#include <filesystem>

namespace rondo {
namespace {

constexpr const char* kModuleEntry = "FILE.so:FACTORY";
constexpr const char* kScriptEntry = "FILE.pt";

OptionsOf<ModelOptions> model_option_table() {
  using Options = ModelOptions;
  OptionsOf<Options> table;
  table.begin_group("Model");
  table.add("layers", &Options::layers, "Number of blocks", above_zero());
  table.add("heads", &Options::heads, "Attention heads", above_zero());
  table.add("width", &Options::width, "Width of the blocks", above_zero());
  table.add("context", &Options::context,
            "Length of a sample: bytes of text (gpt), tokens (bert, default 128)", above_zero());
  table.add("dropout", &Options::dropout, "Probability of dropout", within(0, 1));
  table.add("experts", &Options::experts,
            "Experts in each block in place of its perceptron; 0 is none (docs/model_parallel.md)",
            zero_or_more());
  const OptionNeed experts{"experts"};
  table
      .add("experts-per-token", &Options::experts_per_token,
           "Experts that a token goes to: 1 or 2; default 1", within(1, 2))
      .needs = experts;
  table
      .add("capacity-factor", &Options::capacity_factor,
           "Tokens that an expert takes of a sample, in units of an even share; 0 is all; default 1.25",
           zero_or_more())
      .needs = experts;
  table
      .add("balance-loss", &Options::balance_loss,
           "Factor of the auxiliary loss that spreads tokens over experts; default 0.01", zero_or_more())
      .needs = experts;
  table.add("task", &Options::task, "classify labelled text, or mlm: predict hidden tokens; default classify",
            one_of({"classify", "mlm"}));
  table.add("init", &Options::init,
            "Start from this Hugging Face folder (config.json, model.safetensors, of a bert vocab.txt or "
            "tokenizer.json)",
            path_to_read());
  table.add("vocabulary", &Options::vocabulary, "vocab.txt; default that of --init", path_to_read());
  table.add("cased", &Options::cased, "The vocabulary has capitals and accents");
  return table;
}

}  // namespace

std::vector<Declaration> declared_models() {
  const OptionsOf<ModelOptions> all = model_option_table();
  const auto bert =
      all.only({"layers", "heads", "width", "context", "dropout", "task", "init", "vocabulary", "cased"});
  const auto gpt = all.only({"layers", "heads", "width", "context", "dropout", "experts", "experts-per-token",
                             "capacity-factor", "balance-loss", "init"});
  return {
      {"bert", "BERT's base size, for classes of texts or hidden tokens", bert},
      {"bert-tiny", "the smallest of BERT's published sizes", bert},
      {"convnet", "convolutions for images", all.only({"dropout"})},
      {"gpt", "byte-level causal transformer", gpt},
      {"gpt-25m", "a gpt of 25.5 million parameters, the benchmarks' model", gpt},
      {"gpt-tiny", "a gpt that learns something in seconds on two slow cores", gpt},
      {"mlp", "fully connected layers, for images and tables", all.only({})},
  };
}

std::optional<ModelFile> model_file(const std::string& model) {
  constexpr std::string_view kModule = ".so:";
  if (const std::size_t at = model.rfind(kModule); at != std::string::npos && at > 0)
    return ModelFile{model.substr(0, at + 3), true, model.substr(at + kModule.size())};
  if (model.size() > 3 && (model.ends_with(".pt") || model.ends_with(".pth"))) return ModelFile{model};
  return std::nullopt;
}

std::vector<Declaration> declared_model_files() {
  const auto context = model_option_table().only({"context"});
  return {{kScriptEntry, "a model of your own: TorchScript", context},
          {kModuleEntry, "a model of your own: a shared module and the factory in it", context}};
}

const Declaration* find_model_declaration(const std::vector<Declaration>& entries, const std::string& model) {
  const std::optional<ModelFile> file = model_file(model);
  if (!file) return find_declaration(entries, model);
  return find_declaration(entries, file->is_module ? kModuleEntry : kScriptEntry);
}

std::string absolute_model_name(const std::string& model) {
  const std::optional<ModelFile> file = model_file(model);
  if (!file) return model;
  return std::filesystem::absolute(file->path).lexically_normal().string() +
         (file->is_module ? ":" + file->factory : "");
}

std::string plain_model_name(const std::string& model) {
  const std::optional<ModelFile> file = model_file(model);
  if (!file) return model;
  return std::filesystem::path(file->path).filename().string() + (file->is_module ? ":" + file->factory : "");
}

std::string short_model_name(const std::string& model) {
  const std::optional<ModelFile> file = model_file(model);
  return file ? std::filesystem::path(file->path).stem().string() : model;
}

}  // namespace rondo
