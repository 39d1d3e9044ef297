// A torch::nn::Sequential cut into stages, one per rank; micro-batches pass through them by a schedule.
//   rondo run -n 2 build/release/bin/examples/pipeline zb_h1
#include <iostream>

#include "examples/small_task.h"
#include "rondo/collectives.h"
#include "rondo/core.h"
#include "rondo/parallel.h"
#include "rondo/train.h"

int main(int argc, char** argv) {
  const rondo::Context context = rondo::init();
  const rondo::PipelineOptions options{.schedule = argc > 1 ? argv[1] : "1f1b", .micro_batches = 4};
  if (context.rank() == 0) {
    const auto schedule = rondo::pipeline::make_schedule(options.schedule, context.world_size(),
                                                         static_cast<int>(options.micro_batches));
    std::cout << draw(schedule, simulate(schedule, rondo::pipeline::StageTimes{}));
  }
  const auto strategy = rondo::all_strategies().make("pipeline", context, options);
  rondo::Trainer trainer(*strategy, small_task::model);
  trainer.compile(small_task::optimizer);
  const auto data = small_task::data();
  trainer.fit(data, {.epochs = 5, .batch_size = 32});  // 32 through all stages together
  const double loss = trainer.evaluate(*data).at("loss");
  if (context.rank() == 0) std::cout << "evaluated loss " << loss << "\n";
  return 0;
}
