// Two replicas in one process compute with one copy of the variables; one optimizer updates them.
//   build/release/bin/examples/central_storage
#include <iostream>

#include "examples/small_task.h"
#include "rondo/collectives.h"
#include "rondo/parallel.h"
#include "rondo/train.h"

int main() {
  const rondo::Context context = rondo::init();
  const auto strategy = rondo::all_strategies().make("central_storage", context, {{"replicas", "2"}});
  rondo::Trainer trainer(*strategy, small_task::model);  // a function: each replica gets a model
  trainer.compile(small_task::optimizer);
  const auto data = small_task::data();
  for (int epoch = 1; epoch <= 4; ++epoch) {
    const rondo::FitResult result = trainer.fit(data, {.epochs = epoch, .batch_size = 16});  // 16 a replica
    std::cout << "epoch " << epoch << " loss " << *result.loss << "\n";
  }
  std::cout << "replicas " << strategy->num_replicas_in_sync() << " evaluated loss "
            << trainer.evaluate(*data).at("loss") << "\n";
  return 0;
}
