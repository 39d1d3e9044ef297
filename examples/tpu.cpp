// Four ranks as a 2 x 2 torus: gradients are reduced along its columns and rows. On a slice of TPU hosts each
// host runs the program, which finds its place in TPU_WORKER_ID and TPU_WORKER_HOSTNAMES.
//   rondo run -n 4 build/release/bin/examples/tpu
#include <iostream>

#include "examples/small_task.h"
#include "rondo/collectives.h"
#include "rondo/parallel.h"
#include "rondo/train.h"

int main() {
  const rondo::Context context = rondo::init();
  const auto strategy = rondo::all_strategies().make("tpu", context);
  rondo::Trainer trainer(*strategy, small_task::model);
  trainer.compile(small_task::optimizer);
  const auto data = small_task::data();
  trainer.fit(data, {.epochs = 4, .batch_size = 8});  // 8 per rank
  const double loss = trainer.evaluate(*data).at("loss");
  if (context.rank() == 0)
    std::cout << "replicas " << strategy->num_replicas_in_sync() << " evaluated loss " << loss << "\n";
  return 0;
}
