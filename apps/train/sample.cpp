#include "apps/train/sample.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <iostream>
#include <string_view>

#include "apps/train/trained_run.h"
#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"
#include "rondo/checkpoint/checkpoint.h"
#include "rondo/checkpoint/weights.h"
#include "rondo/models/generate.h"

namespace rondo {
namespace {

// Length of the UTF-8 sequence that `text` begins with, or 0 when it begins with none.
std::size_t sequence_length(std::string_view text) {
  const auto first = static_cast<unsigned char>(text.front());
  const std::size_t length = first < 0x80   ? 1
                             : first < 0xC2 ? 0
                             : first < 0xE0 ? 2
                             : first < 0xF0 ? 3
                             : first < 0xF5 ? 4
                                            : 0;
  if (length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) return 0;
  }
  return length;
}

// A model of bytes may write anything; what is no text becomes the replacement character, so that terminals
// survive it.
std::string printable(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::size_t length = sequence_length(text);
    const bool control = length == 1 &&
                         (static_cast<unsigned char>(text.front()) < 0x20 || text.front() == 0x7F) &&
                         text.front() != '\n' && text.front() != '\t';
    if (length == 0 || control) {
      result += "\xEF\xBF\xBD";
    } else {
      result += text.substr(0, length);
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return result;
}

}  // namespace

void print_sample(const TrainFlags& flags) {
  const LearntWeights learnt = learnt_weights(flags.run_dir);
  const std::filesystem::path& checkpoint = learnt.checkpoint;  // its readers verify it
  const std::string file = (checkpoint / "state.json").string(), of_model = json_place(file, "model");
  const nlohmann::json values = read_checkpoint_values(checkpoint);
  const nlohmann::json& description = json_member(values, "model", file);
  say_average(learnt.is_average, checkpoint);
  Model model =
      make_model(json_text(json_member(description, "name", of_model), json_place(of_model, "name")),
                 json_member(description, "config", of_model));
  // A run at opt level O3 has kept its weights in the type it trained in.
  const NamedTensors weights = read_weights(checkpoint);
  model.module->to(weights.front().tensor.scalar_type());
  prepare_assign(named_tensors(*model.module), weights, checkpoint.string())();
  model.module->to(at::kFloat);
  Gpt gpt = gpt_of(model);

  GenerateOptions options;
  options.tokens = flags.length;
  options.temperature = flags.temperature;
  options.top_k = flags.top_k;
  options.seed = flags.seed;
  std::cout << *flags.sample << printable(generate_text(gpt, *flags.sample, options)) << std::endl;
}

}  // namespace rondo
