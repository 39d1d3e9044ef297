// Two replicas in each of several processes, in a loop of one's own as TensorFlow's guide writes it.
//   rondo run -n 2 build/release/bin/examples/multi_worker_mirrored
#include <iostream>

#include "examples/small_task.h"
#include "rondo/collectives.h"
#include "rondo/parallel.h"

int main() {
  const rondo::Context context = rondo::init();
  const auto strategy = rondo::all_strategies().make("multi_worker_mirrored", context, {{"replicas", "2"}});
  const auto training = strategy->prepare({.model = small_task::model, .optimizer = small_task::optimizer});
  const auto data = strategy->distribute(small_task::data(), {.global_batch_size = 32, .shuffle = true});
  const rondo::LossFunction loss_function = rondo::cross_entropy;
  const auto step = [&](const rondo::Batch& batch) {  // called for each replica, in its thread
    training->prepared().begin_step({.samples = batch.samples});
    const rondo::Loss loss = loss_function(training->forward(batch), batch.targets, batch.samples);
    training->optimizer().zero_grad();
    loss.mean.backward();
    training->prepared().finish_backward();  // the mean over the samples of all replicas of all processes
    training->prepared().step(training->optimizer());
    return loss.sum;
  };
  for (int epoch = 1; epoch <= 4; ++epoch) {
    double sum = 0;
    while (const auto batches = data->next())
      sum += strategy->reduce(rondo::ReduceOp::SUM, strategy->run(step, *batches)).item<double>();
    if (context.rank() == 0)
      std::cout << "epoch " << epoch << " loss " << sum / 512 << "\n";  // of 512 samples
  }
  if (context.rank() == 0) std::cout << "replicas " << strategy->num_replicas_in_sync() << "\n";
  return 0;
}
