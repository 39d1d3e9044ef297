// Groups of two ranks: the ranks of a group compute together, and groups exchange data through a server only.
//   rondo run --ps 1 --workers 4 build/release/bin/examples/grouped
#include <iostream>

#include "examples/small_task.h"
#include "rondo/core.h"
#include "rondo/parallel.h"
#include "rondo/train.h"

int main() {
  const auto cluster = rondo::env::read_cluster(rondo::env::process_environment());
  if (cluster && cluster->is_server) {
    rondo::server::run_task(*cluster);  // until the workers have finished
    return 0;
  }
  const rondo::Context context = rondo::init(rondo::init_options_of_group(2));
  const auto strategy = rondo::all_strategies().make("grouped", context, {{"ps-groups", "2"}});
  rondo::Trainer trainer(*strategy, small_task::model);
  trainer.compile(small_task::optimizer);
  const auto data = small_task::data();
  trainer.fit(data, {.epochs = 6, .batch_size = 8});                           // 8 per rank
  const bool is_chief = strategy->input_shard().index < context.world_size();  // the first group
  if (!is_chief) return 0;
  strategy->wait_for_others();
  const double loss = trainer.evaluate(*data).at("loss");  // computed by the ranks of the first group
  if (context.rank() == 0)
    std::cout << "ranks of a group " << context.world_size() << " evaluated loss " << loss << "\n";
  return 0;
}
