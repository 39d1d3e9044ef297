// A server holds the model; workers pull it and push gradients asynchronously. Every process runs this
// program and finds its role in TF_CONFIG.
//   rondo run --ps 1 --workers 2 build/release/bin/examples/parameter_server
#include <iostream>

#include "examples/small_task.h"
#include "rondo/collectives.h"
#include "rondo/core.h"
#include "rondo/parallel.h"
#include "rondo/train.h"

int main() {
  const auto cluster = rondo::env::read_cluster(rondo::env::process_environment());
  if (cluster && cluster->is_server) {
    rondo::server::run_task(*cluster);  // returns when the workers have finished
    return 0;
  }
  const rondo::Context context = rondo::init({.init_method = "alone"});
  const auto strategy = rondo::all_strategies().make("parameter_server", context);
  rondo::Trainer trainer(*strategy, small_task::model);
  trainer.compile(small_task::optimizer);
  const auto data = small_task::data();
  trainer.fit(data, {.epochs = 6, .batch_size = 16});  // 16 per worker
  if (strategy->input_shard().index != 0) return 0;    // not the chief
  strategy->wait_for_others();
  std::cout << "evaluated loss " << trainer.evaluate(*data).at("loss") << "\n";
  return 0;
}
