#include "rondo/profile/layer_profile.h"

#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/types.h>

#include <set>

#include "rondo/backend/memory/tracked_memory.h"
#include "rondo/models/model.h"
#include "rondo/models/model_setup.h"
#include "rondo/nn/loss.h"
#include "rondo/nn/unit_state.h"

namespace rondo::layer_profile_test {
namespace {

using Layers = std::vector<cost::LayerProfile>;

Model line() {
  return as_model(
      std::make_shared<torch::nn::SequentialImpl>(torch::nn::Linear(4, 8), torch::nn::Linear(8, 2)));
}

Model text_model() {
  return make_model("gpt", {{"layers", 1}, {"heads", 2}, {"width", 8}, {"context", 8}, {"vocabulary", 16}});
}

Layers profile(const ModelFactory& model, const Batch& batch, const LossFunction& loss) {
  track_cpu_allocations();
  return profile_layers(model, batch, loss, {{.name = kRootUnit, .strategies = {}}},
                        {.passes = 1, .divided_ranks = {2}});
}

Layers profile_text(const LossFunction& loss) {
  const ExampleBatch example = example_batch(text_model(), 2);
  return profile(text_model, {{example.input}, {example.target}, 2}, loss);
}

const cost::LayerPart& divided(const cost::LayerProfile& layer) {
  for (const cost::LayerPart& part : layer.parts) {
    if (part.dimension == "tensor" && part.ranks == 2) return part;
  }
  throw std::runtime_error(layer.name + " was not divided");
}

TEST(LayerProfile, LossIsAnyFunctionOfOutputsAndTargets) {
  const Batch batch{{torch::randn({4, 4})}, {torch::randn({4, 2}), torch::rand({4, 1})}, 4};
  std::vector<std::int64_t> samples;
  const Layers layers = profile(line, batch, [&](const Tensors& outputs, const Tensors& targets) {
    samples.push_back(targets[1].size(0));
    return ((outputs[0] - targets[0]).square() * targets[1]).mean();
  });
  ASSERT_EQ(layers.size(), 2U);
  // The batch and a quarter of it.
  EXPECT_EQ(std::set<std::int64_t>(samples.begin(), samples.end()), (std::set<std::int64_t>{1, 4}));
}

// As in training: cross entropy communicates three numbers per row, any other loss the outputs.
TEST(LayerProfile, ALossOfDividedClassesCommunicates) {
  const Layers usual = profile_text(cross_entropy);
  ASSERT_FALSE(usual.empty());
  const std::uint64_t rows = 2 * 8, bytes = rows * sizeof(float);
  const cost::LayerPart& head = divided(usual.back());
  const Layers weighted =
      profile_text(weighted_loss("cross_entropy", {.classes = std::vector<double>(16, 0.5)}));
  ASSERT_FALSE(weighted.empty());
  const cost::LayerPart& gathered = divided(weighted.back());
  EXPECT_EQ(head.forward_messages, 2);
  EXPECT_EQ(head.forward_message_bytes, 3 * bytes);
  EXPECT_EQ(gathered.forward_messages, 1);
  EXPECT_EQ(gathered.forward_message_bytes, 8 * bytes) << "half of the 16 classes of each row";
}

}  // namespace
}  // namespace rondo::layer_profile_test
