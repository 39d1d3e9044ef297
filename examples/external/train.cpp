// A one-process libtorch training loop and the three lines that make it data-parallel. It runs alone, and as
// many processes under `rondo run -n 2 ./train`, torchrun, mpirun or Slurm.
#include <rondo/rondo.h>
#include <torch/torch.h>
#include <cstdio>
#include <exception>

void train() {
  rondo::Context context = rondo::init();  // new: joins the job; a job of one without a launcher
  torch::manual_seed(context.rank());      // each rank draws its own samples

  torch::nn::Sequential model(torch::nn::Linear(8, 32), torch::nn::Tanh(), torch::nn::Linear(32, 1));
  rondo::DistributedDataParallel ddp(*model, context.world());  // new: all ranks start from rank 0's weights
  torch::optim::SGD optimizer(model->parameters(), /*lr=*/0.1);

  for (int step = 1; step <= 200; ++step) {
    const torch::Tensor input = torch::randn({16, 8});
    const torch::Tensor target = input.sum(1, /*keepdim=*/true).sin();
    optimizer.zero_grad();
    torch::Tensor loss =
        torch::mse_loss(ddp.forward(model, input), target);  // new: was model->forward(input)
    loss.backward();                                         // gradients are averaged meanwhile
    optimizer.step();
    if (step % 50 == 0 && context.rank() == 0) std::printf("step %d loss %.4f\n", step, loss.item<float>());
  }
  // Ranks hold the same weights to the last bit.
  double sum = 0;
  for (const torch::Tensor& parameter : model->parameters()) sum += parameter.sum().item<double>();
  std::printf("rank %d of %d: sum of weights %.17g\n", context.rank(), context.world_size(), sum);
}

int main() {
  try {
    train();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
