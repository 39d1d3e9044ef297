// A search for a learning rate: the chief schedules one training per rate on the next free worker.
//   build/release/bin/rondo run --workers 3 -- build/release/bin/examples/coordinator
#include <array>
#include <iostream>
#include <map>
#include <string>

#include "examples/small_task.h"
#include "rondo/core.h"

namespace {

// Trains the small model with a learning rate; returns its last loss. Argument and result are texts.
std::string train(const std::string& learning_rate) {
  constexpr std::array<std::int64_t, 8> samples = {0, 1, 2, 3, 4, 5, 6, 7};
  const rondo::Batch batch = small_task::data()->get(samples);  // also seeds the model's weights
  const rondo::Model model = small_task::model();
  torch::optim::SGD optimizer(model.module->parameters(), std::stod(learning_rate));
  at::Tensor loss;
  for (int step = 0; step < 50; ++step) {
    optimizer.zero_grad();
    loss = torch::nn::functional::cross_entropy(model.forward(batch.input()), batch.target());
    loss.backward();
    optimizer.step();
  }
  return std::to_string(loss.item<double>());
}

}  // namespace

int main() {
  rondo::server::coordinate({{"train", train}}, [](rondo::server::Coordinator& coordinator) {
    std::map<std::string, rondo::server::RemoteValue> losses;
    for (const char* rate : {"0.001", "0.01", "0.1", "0.5"})
      losses.emplace(rate, coordinator.schedule("train", rate));
    for (const auto& [rate, loss] : losses) std::cout << "rate " << rate << " loss " << loss.fetch() << "\n";
  });
  return 0;
}
