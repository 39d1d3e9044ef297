// A mesh of two dimensions: stages of a model along one, replicas of each stage along the other.
//   rondo run -n 4 build/release/bin/examples/mesh zero1
#include <iostream>

#include "examples/small_task.h"
#include "rondo/collectives.h"
#include "rondo/extend/strategy.h"
#include "rondo/parallel.h"
#include "rondo/train.h"

int main(int argc, char** argv) {
  const rondo::Context world = rondo::init();
  const int stages = world.world_size() > 1 ? 2 : 1;
  const rondo::Context context = world.mesh({{"pipeline", stages}, {"data", world.world_size() / stages}});
  // The strategy along "data" has the ranks with the same stage as this one.
  const auto strategy =
      rondo::strategy_on_mesh(rondo::all_strategies(), argc > 1 ? argv[1] : "ddp", context,
                              [](const std::string& name) -> rondo::OptionValues {
                                if (name != "pipeline") return {};
                                return {{"pipeline-schedule", "1f1b"}, {"micro-batches", "4"}};
                              });
  rondo::Trainer trainer(*strategy, small_task::model);
  trainer.compile(small_task::optimizer);
  const auto data = small_task::data();
  trainer.fit(data, {.epochs = 5, .batch_size = 32 / strategy->num_replicas_in_sync()});
  const double loss = trainer.evaluate(*data).at("loss");
  std::cout << "rank " << context.rank() << " is stage " << context.group("pipeline").rank() << " of replica "
            << context.group("data").rank() << std::endl;
  if (context.rank() == 0) std::cout << "evaluated loss " << loss << "\n";
  return 0;
}
