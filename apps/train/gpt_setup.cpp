#include "apps/train/gpt_setup.h"

#include <filesystem>

#include "apps/train/init_weights.h"
#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"
#include "rondo/models/gpt_config.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kBytes = 256;  // the vocabulary of texts read byte by byte

GptConfig gpt_config_of_folder(const std::string& folder) {
  if (!fs::is_directory(folder))
    throw UsageError(str("--init ", folder, ": expected a folder with config.json and model.safetensors"));
  const fs::path path = fs::path(folder) / "config.json";
  return gpt_config_from(read_json_file(path), path.string());
}

}  // namespace

bool is_gpt(const std::string& model) { return model.starts_with("gpt"); }

DataOptions gpt_data_options(const TrainFlags& flags, DataOptions options) {
  if (flags.of_model.init.empty()) return options;
  const GptConfig pretrained = gpt_config_of_folder(flags.of_model.init);
  if (flags.of_model.context && options.context > pretrained.context)
    throw UsageError(
        str("--context ", options.context, ": the model of --init has ", pretrained.context, " positions"));
  options.context = std::min(options.context, pretrained.context);
  const fs::path tokenizer = fs::path(flags.of_model.init) / "tokenizer.json";
  if (pretrained.vocabulary != kBytes && options.tokenizer_file.empty() && fs::exists(tokenizer))
    options.tokenizer_file = tokenizer;
  return options;
}

nlohmann::json gpt_training_config(const TrainFlags& flags, const DatasetInfo& info,
                                   const nlohmann::json& overrides) {
  const GptConfig pretrained = gpt_config_of_folder(flags.of_model.init);
  // A model may have room for more tokens than a tokenizer has; bytes are no other tokenizer's.
  if (info.classes > pretrained.vocabulary ||
      (info.classes == kBytes && info.classes != pretrained.vocabulary)) {
    throw UsageError(str("--data ", info.source, " has ", info.classes,
                         " different tokens, the model of --init ", flags.of_model.init, " knows ",
                         pretrained.vocabulary));
  }
  nlohmann::json config = gpt_model_config(pretrained);
  nlohmann::json own = overrides;
  own.erase("context");  // of the data
  config.update(own);
  return config;
}

void load_gpt_weights(const TrainFlags& flags, const Model& model, bool say) {
  PretrainedNames names;
  names.in_model = gpt_tensor_name;
  names.is_ignored = is_mask_in_gpt2;
  names.is_transposed = is_transposed_in_gpt2;
  if (gpt_config_of_folder(flags.of_model.init).tied_head)
    names.shared = {{"lm_head.weight", "transformer.wte.weight"}};
  load_init_weights(flags, model, names, say);
}

}  // namespace rondo
