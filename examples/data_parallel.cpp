// PyTorch's DataParallel: a loop of one process, whose forward divides the batch among two replicas and
// gathers their outputs. The first replica has the model, the gradients, the outputs and the optimizer.
//   build/release/bin/examples/data_parallel
#include <iostream>

#include "examples/small_task.h"
#include "rondo/collectives.h"
#include "rondo/memory.h"
#include "rondo/parallel.h"

int main() {
  rondo::track_cpu_allocations();
  const rondo::Context context = rondo::init();
  const auto strategy = rondo::all_strategies().make("data_parallel", context, {{"devices", "cpu,cpu"}});
  const auto training = strategy->prepare({.model = small_task::model, .optimizer = small_task::optimizer});
  const auto data = strategy->distribute(small_task::data(), {.global_batch_size = 32, .shuffle = true});
  const auto step = [&](const rondo::Batch& batch) {  // called once, with all 32 samples
    training->prepared().begin_step({.samples = batch.samples});
    const at::Tensor outputs =
        training->forward(batch).front();  // outputs of both replicas, in the order of the samples
    const at::Tensor loss = torch::cross_entropy_loss(outputs, batch.target());
    training->optimizer().zero_grad();
    loss.backward();
    training->prepared().finish_backward();  // the gradients of both add up on the first
    training->prepared().step(training->optimizer());
    return loss.detach();
  };
  for (int epoch = 1; epoch <= 4; ++epoch) {
    at::Tensor loss;
    while (const auto batches = data->next())
      loss = strategy->reduce(rondo::ReduceOp::SUM, strategy->run(step, *batches));
    std::cout << "epoch " << epoch << " loss " << loss.item<double>() << "\n";
  }
  for (const auto bytes : training->replica_peak_bytes()) std::cout << "peak bytes " << bytes << "\n";
  return 0;
}
