// Ranks that train alone and are averaged once in eight steps: DiLoCo, after some steps together.
//   rondo run -n 2 build/release/bin/examples/local_sgd
#include <iostream>

#include "examples/small_task.h"
#include "rondo/collectives.h"
#include "rondo/parallel.h"
#include "rondo/train.h"

int main() {
  const rondo::Context context = rondo::init();
  const rondo::LocalSgdOptions options{.sync_period = 8, .synchronous_steps = 8, .outer = "diloco"};
  const auto strategy = rondo::all_strategies().make("local_sgd", context, options);
  rondo::Trainer trainer(*strategy, small_task::model);
  trainer.compile(small_task::optimizer);
  const auto data = small_task::data();
  trainer.fit(data, {.epochs = 5, .batch_size = 16});      // 16 a rank
  const double loss = trainer.evaluate(*data).at("loss");  // of the mean of the ranks' models
  if (context.rank() == 0) std::cout << "evaluated loss " << loss << "\n";
  return 0;
}
