// Fine-tuning of a BERT on labelled texts, on one process or many: only the strategy's name differs.
//   build/release/bin/examples/finetune_bert FOLDER data.tsv one_device
//   rondo run -n 2 build/release/bin/examples/finetune_bert FOLDER data.tsv ddp
// FOLDER is a Hugging Face folder (config.json, vocab.txt, model.safetensors), data.tsv has lines of a label,
// a tab and a text.
#include <torch/types.h>
#include <torch/utils.h>

#include <fstream>
#include <iostream>

#include "rondo/checkpoint.h"
#include "rondo/collectives.h"
#include "rondo/data.h"
#include "rondo/models.h"
#include "rondo/parallel.h"
#include "rondo/train.h"

namespace {

rondo::Model pretrained(const std::string& folder, const rondo::DatasetInfo& data) {
  std::ifstream file(folder + "/config.json");
  nlohmann::json config =
      rondo::bert_model_config(rondo::bert_config_from(nlohmann::json::parse(file), folder + "/config.json"));
  config["classes"] = data.classes;
  torch::manual_seed(0);  // the classifier's initial weights are equal on any number of processes
  rondo::Model model = rondo::make_model("bert", config);
  rondo::load_pretrained(
      folder + "/model.safetensors", rondo::named_tensors(*model.module),
      {.in_model = rondo::bert_tensor_name, .optional_parts = {"classifier.", "bert.pooler."}});
  rondo::freeze(*model.module, {"embeddings"});
  return model;
}

void finetune(const std::string& folder, const std::string& path, const std::string& strategy_name) {
  constexpr std::int64_t kGlobalBatch = 16;
  const rondo::Context context = rondo::init();
  const auto strategy = rondo::all_strategies().make(strategy_name, context);
  const rondo::OpenedData data =
      rondo::open_data("labelled_text", path, {.context = 16, .vocabulary_file = folder + "/vocab.txt"});
  rondo::Trainer trainer(*strategy, pretrained(folder, data.train->info()));
  trainer.compile(
      [](torch::nn::Module& module) {
        return rondo::make_optimizer({.name = "adamw", .learning_rate = 1e-3}, module);
      },
      rondo::cross_entropy, {rondo::loss_metric(), rondo::accuracy_metric()});
  for (std::int64_t epochs = 1; epochs <= 3; ++epochs) {
    const rondo::FitResult result = trainer.fit(
        data.train,
        {.epochs = epochs, .batch_size = kGlobalBatch / context.world_size(), .validation = data.validation});
    if (context.rank() != 0) continue;
    std::cout << "epoch " << epochs << " loss " << result.validation.at("loss") << " accuracy "
              << result.validation.at("accuracy") << std::endl;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: finetune_bert FOLDER data.tsv STRATEGY\n";
    return 2;
  }
  try {
    finetune(argv[1], argv[2], argv[3]);
  } catch (const std::exception& error) {
    std::cerr << "finetune_bert: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
