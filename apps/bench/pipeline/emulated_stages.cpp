#include "apps/bench/pipeline/emulated_stages.h"

#include <torch/nn.h>
#include <torch/types.h>

#include "rondo/base/text.h"

namespace rondo::bench {
namespace {

constexpr std::int64_t kWidth = 64;

struct EmulatedLayerImpl : torch::nn::Module {
  explicit EmulatedLayerImpl(const EmulatedTimes& its) : times(its) {
    weight = register_parameter("weight", torch::zeros({kWidth}));
  }
  at::Tensor forward(const at::Tensor& values) { return emulated_unit(values, weight, times); }
  EmulatedTimes times;
  at::Tensor weight;
};
TORCH_MODULE(EmulatedLayer);

}  // namespace

Model make_emulated_stages(int units, const EmulatedTimes& times) {
  torch::nn::Sequential layers;
  for (int unit = 0; unit < units; ++unit) layers->push_back(str("unit", unit), EmulatedLayer(times));
  return {.name = "emulated",
          .config = nlohmann::json::object(),
          .module = layers.ptr(),
          .forward = [raw = layers.get()](const at::Tensor& input) { return raw->forward(input); }};
}

Batch emulated_batch(std::int64_t samples) {
  Batch batch;
  batch.inputs = {torch::ones({samples, kWidth}).requires_grad_()};
  batch.targets = {torch::zeros({samples}, torch::kLong)};
  batch.samples = samples;
  return batch;
}

}  // namespace rondo::bench
