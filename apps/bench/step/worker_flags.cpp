#include "apps/bench/step/worker_flags.h"

#include <iostream>

namespace rondo::bench {

void add_worker_flags(CLI::App& command, WorkerOptions& options) {
  StepCase& training = options.training;
  command.add_option("--strategy", options.strategy)->required();
  command.add_option("--model", training.model)->required();
  command.add_option("--config", options.config)->required();
  command.add_option("--weights", training.weights)->required();
  command.add_option("--dtype", training.dtype)->required();
  command.add_option("--batch-size", training.batch_size)->required();
  command.add_option("--lr", training.learning_rate)->required();
  command.add_option("--max-grad-norm", training.clip_norm);
  command.add_option("--optimizer", training.optimizer)->required();
  command.add_option("--codec", training.codec);
  command.add_option("--rank", options.rank)->required();
  command.add_option("--world-size", options.world_size)->required();
  command.add_option("--rendezvous", options.rendezvous)->required();
}

void answer_lines(const std::function<nlohmann::json(const std::string& command, int steps)>& answer) {
  std::cout << nlohmann::json{{"ready", true}}.dump() << std::endl;
  std::string command;
  int steps = 0;
  while (std::cin >> command >> steps) std::cout << answer(command, steps).dump() << std::endl;
}

}  // namespace rondo::bench
