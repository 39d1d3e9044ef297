// BERT on texts in C++, without Python. Reads a Hugging Face folder (config.json, vocab.txt,
// model.safetensors) and writes one JSON object per line of input.
//   echo "a fine film" | build/release/bin/examples/bert_predict FOLDER classify
//   echo "a [MASK] film" | build/release/bin/examples/bert_predict FOLDER mlm
// A tab in a line separates two texts. classify prints the logits of the classes, mlm those of the vocabulary
// for each [MASK].
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "rondo/checkpoint.h"
#include "rondo/data.h"
#include "rondo/models.h"

namespace {

constexpr std::int64_t kClasses = 2;
constexpr std::int64_t kContext = 64;

rondo::Model load(const std::string& folder, const std::string& task) {
  std::ifstream file(folder + "/config.json");
  const rondo::BertConfig architecture =
      rondo::bert_config_from(nlohmann::json::parse(file), folder + "/config.json");
  nlohmann::json config = rondo::bert_model_config(architecture);
  config.update({{"task", task}, {"classes", kClasses}});
  rondo::Model model = rondo::make_model("bert", config);
  rondo::load_pretrained(
      folder + "/model.safetensors", rondo::named_tensors(*model.module),
      {.in_model = rondo::bert_tensor_name,
       .shared = {{"cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"},
                  {"cls.predictions.decoder.bias", "cls.predictions.bias"}}});
  model.module->eval();
  return model;
}

std::vector<float> values(const at::Tensor& logits) {
  const at::Tensor flat = logits.contiguous();
  return {flat.const_data_ptr<float>(), flat.const_data_ptr<float>() + flat.numel()};
}

void predict(const rondo::Model& model, const rondo::WordPiece& tokenizer, const std::string& line,
             bool classify) {
  const std::size_t tab = line.find('\t');
  const std::vector<std::int64_t> first = tokenizer.encode(line.substr(0, tab));
  const std::vector<std::int64_t> second =
      tab == std::string::npos ? std::vector<std::int64_t>() : tokenizer.encode(line.substr(tab + 1));
  const at::Tensor input = at::empty({1, 3, kContext}, at::kLong);
  auto* data = input.mutable_data_ptr<std::int64_t>();
  rondo::write_bert_sample(tokenizer, first, second, kContext, {data, data + kContext, data + 2 * kContext});
  const std::int64_t length = input[0][2].sum().item<std::int64_t>();

  const at::Tensor logits = model.forward(input)[0];
  nlohmann::json result = {{"tokens", std::vector<std::int64_t>(data, data + length)}};
  if (classify) {
    result["logits"] = values(logits);
  } else {
    result["logits"] = nlohmann::json::array();
    for (std::int64_t i = 0; i < length; ++i) {
      if (data[i] == tokenizer.mask()) result["logits"].push_back(values(logits[i]));
    }
  }
  std::cout << result.dump() << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  const std::string task = argc == 3 ? argv[2] : "";
  if (task != "classify" && task != "mlm") {
    std::cerr << "usage: bert_predict FOLDER classify|mlm < texts\n";
    return 2;
  }
  try {
    const torch::NoGradGuard no_gradients;
    const rondo::Model model = load(argv[1], task);
    const auto tokenizer = rondo::WordPiece::from_file(std::string(argv[1]) + "/vocab.txt", {});
    for (std::string line; std::getline(std::cin, line);) predict(model, tokenizer, line, task == "classify");
  } catch (const std::exception& error) {
    std::cerr << "bert_predict: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
