// Images from a torch::data loader, a learning-rate scheduler, and an evaluation that counts each sample
// once.
//   rondo run -n 2 build/release/bin/examples/torch_data
#include <torch/torch.h>

#include <iostream>

#include "rondo/collectives.h"
#include "rondo/data.h"
#include "rondo/models.h"
#include "rondo/nn.h"
#include "rondo/parallel.h"

namespace {

// A synthetic replacement for MNIST that needs no download: noise with one bright band of rows per class. Any
// torch::data set works in its place, such as torch::data::datasets::MNIST("/path").
class Bands : public torch::data::Dataset<Bands> {
 public:
  explicit Bands(std::size_t size) : size_(size) {}
  torch::data::Example<> get(std::size_t index) override {
    const auto label = static_cast<std::int64_t>(index % 10);
    at::Tensor image = torch::randn({1, 28, 28}, at::detail::createCPUGenerator(index)) * 0.5;
    image.slice(/*dim=*/1, 2 * label + 4, 2 * label + 6) += 1.0;
    return {image, torch::scalar_tensor(label, torch::kLong)};
  }
  std::optional<std::size_t> size() const override { return size_; }

 private:
  std::size_t size_;
};

auto make_loader(std::size_t samples, std::shared_ptr<rondo::Sampler> sampler) {
  return torch::data::make_data_loader(Bands(samples).map(torch::data::transforms::Stack<>()),
                                       rondo::TorchSampler(std::move(sampler)),
                                       torch::data::DataLoaderOptions(16));
}

// Returns the accuracy over all samples on all ranks; numbers of samples may differ between ranks.
double evaluate(rondo::Convnet& model, const rondo::Context& context) {
  constexpr std::size_t kSamples = 101;
  const torch::NoGradGuard no_gradients;
  model->eval();
  at::Tensor correct_and_seen = torch::zeros({2}, torch::kLong);
  auto sampler = std::make_shared<rondo::ExactSampler>(kSamples, context.rank(), context.world_size());
  const auto loader = make_loader(kSamples, sampler);
  for (const auto& batch : *loader) {
    correct_and_seen[0] += rondo::count_correct(model->forward(batch.data), batch.target);
    correct_and_seen[1] += batch.target.numel();
  }
  rondo::all_reduce(correct_and_seen, context.world());
  model->train();
  if (context.rank() == 0)
    std::cout << "evaluated " << correct_and_seen[1].item<std::int64_t>() << " samples, ";
  return correct_and_seen[0].item<double>() / correct_and_seen[1].item<double>();
}

}  // namespace

int main() {
  constexpr std::size_t kSamples = 501;
  const rondo::Context context = rondo::init();
  torch::manual_seed(0);
  rondo::Convnet model;
  rondo::DistributedDataParallel ddp(*model, context.world());
  torch::optim::Adam optimizer(model->parameters(), /*lr=*/2e-3);
  torch::optim::StepLR scheduler(optimizer, /*step_size=*/1, /*gamma=*/0.5);
  auto sampler = std::make_shared<rondo::DistributedSampler>(
      kSamples, rondo::DistributedSamplerOptions{.rank = context.rank(), .world_size = context.world_size()});
  auto loader = make_loader(kSamples, sampler);
  for (int epoch = 0; epoch < 3; ++epoch) {
    sampler->set_epoch(epoch);
    for (const auto& batch : *loader) {
      optimizer.zero_grad();
      rondo::cross_entropy(ddp.forward(model, batch.data), batch.target).mean.backward();
      optimizer.step();
    }
    scheduler.step();
    const double accuracy = evaluate(model, context);
    if (context.rank() == 0) std::cout << "epoch " << epoch << " accuracy " << accuracy << "\n";
  }
  return 0;
}
