#include "rondo/simulate/mesh_step.h"

#include <gtest/gtest.h>

#include "rondo/base/error.h"
#include "rondo/cost/synthetic.h"

namespace rondo::simulate::mesh_step_test {
namespace {

// Returns a profile of equal layers, with negligible message times.
cost::Profile equal_layers(int layers, int batch) {
  return cost::synthetic_profile(
      "gpt:layers=" + std::to_string(layers) +
          ",dim=256,seq=64,heads=8,rate=1e18,latency=0s,batch=" + std::to_string(batch),
      8);
}

PipelineChoice choice_of(const PipelineCosts& costs, const std::string& schedule, int micro_batches) {
  PipelineChoice choice;
  choice.schedule = schedule;
  choice.micro_batches = micro_batches;
  const int stages = costs.shape().pipeline * pipeline::stages_per_rank(schedule);
  const int layers = static_cast<int>(costs.layers().size());
  for (int stage = 0; stage < stages; ++stage) choice.first.push_back(stage * layers / stages);
  choice.strategies.assign(static_cast<std::size_t>(costs.shape().pipeline), cost::Strategy::ddp);
  choice.checkpointed.assign(costs.layers().size(), false);
  return choice;
}

PipelineForecast forecast(const cost::Profile& profile, MeshShape shape, const std::string& schedule,
                          int micro_batches) {
  shape.samples = static_cast<double>(profile.batch_size);
  const PipelineCosts costs(profile, shape, same_links(profile.link), micro_batches);
  return costs.forecast(choice_of(costs, schedule, micro_batches));
}

TEST(MeshStep, IsPassesPlusBubblePlusUpdate) {
  const cost::Profile profile = equal_layers(8, 16);
  const double pass = 8 * (profile.units[0].forward_s + profile.units[0].backward_s);
  const double update = 8 * profile.units[0].optimizer_s;
  for (const int ranks : {2, 4, 8}) {
    const PipelineForecast step = forecast(profile, {.pipeline = ranks}, "1f1b", 16);
    const double work = pass / ranks;
    // The last stage has updated when the first one has finished its last backward pass.
    EXPECT_NEAR(step.step_s, work * (1 + (ranks - 1) / 16.0) + update / ranks, 1e-6 * step.step_s) << ranks;
    EXPECT_NEAR(step.ranks[0].busy_s, work, 1e-9);
  }
}

TEST(MeshStep, MoreStagesIdleLongerMoreMicroBatchesLess) {
  const cost::Profile profile = equal_layers(16, 32);
  double before = 0;
  for (const int ranks : {2, 4, 8, 16}) {
    const double idle = forecast(profile, {.pipeline = ranks}, "1f1b", 16).idle_share();
    EXPECT_GT(idle, before);
    before = idle;
  }
  EXPECT_LT(forecast(profile, {.pipeline = 4}, "1f1b", 32).idle_share(),
            forecast(profile, {.pipeline = 4}, "1f1b", 8).idle_share());
  EXPECT_LT(forecast(profile, {.pipeline = 4}, "interleaved", 8).idle_share(),
            forecast(profile, {.pipeline = 4}, "1f1b", 8).idle_share());
  EXPECT_LT(forecast(profile, {.pipeline = 4}, "zb_h1", 8).idle_share(),
            forecast(profile, {.pipeline = 4}, "1f1b", 8).idle_share());
}

TEST(MeshStep, OneForwardOneBackwardLimitsMicroBatches) {
  const cost::Profile profile = equal_layers(8, 16);
  const PipelineForecast step = forecast(profile, {.pipeline = 4}, "1f1b", 16);
  const cost::UnitProfile& unit = profile.units[0];
  const std::uint64_t state = 2 * (unit.parameter_bytes + unit.gradient_bytes + unit.optimizer_bytes);
  const std::uint64_t micro = profile.units[0].activation_bytes / 16;
  const std::uint64_t workspace = profile.layers[0].parts[0].at(1).backward_workspace_bytes;
  // Two messages are in flight at a time: the next gradient may arrive while this one is used.
  const std::uint64_t message = profile.layers[0].output_bytes / 16;
  EXPECT_EQ(step.ranks[0].peak_bytes, profile.base_bytes + state + 4 * 2 * micro + workspace + message);
  // The last rank keeps one activation, its input from the previous stage, and room for the next input.
  EXPECT_EQ(step.ranks[3].peak_bytes, profile.base_bytes + state + 2 * micro + workspace + 2 * message);
}

TEST(MeshStep, DividedBackwardKeepsInputsOfItsSecondPart) {
  cost::Profile profile = equal_layers(8, 16);
  const auto peak_of_last = [&] {
    return forecast(profile, {.pipeline = 4}, "zb_h1", 16).ranks[3].peak_bytes;
  };
  const std::uint64_t before = peak_of_last();
  for (cost::LayerProfile& layer : profile.layers) layer.parts[0].passes[0].deferred_bytes *= 2;
  EXPECT_GT(peak_of_last(), before);
}

TEST(MeshStep, FirstStageDefersAllOfBackward) {
  const cost::Profile profile = equal_layers(8, 16);
  const MeshShape shape{.pipeline = 4, .samples = 16};
  const PipelineCosts costs(profile, shape, same_links(profile.link), 16);
  PipelineChoice choice = choice_of(costs, "zb_h1", 16);
  const auto& layer = costs.layers()[0];
  const pipeline::StageTimes first = costs.stage_times(0, 2, splits_backward(choice), choice.checkpointed);
  EXPECT_EQ(first.backward_input_s, 0);
  EXPECT_DOUBLE_EQ(first.backward_weight_s, 2 * layer.backward_s);
  const pipeline::StageTimes second = costs.stage_times(2, 4, splits_backward(choice), choice.checkpointed);
  EXPECT_DOUBLE_EQ(second.backward_input_s, 2 * layer.backward_input_s);
  // With a checkpointed layer training does not split backward passes.
  choice.checkpointed[5] = true;
  EXPECT_FALSE(splits_backward(choice));
}

TEST(MeshStep, EveryGroupOfAMeshHasAnEngine) {
  cost::Profile profile = equal_layers(8, 16);
  profile.engine_bytes = 1400;
  profile.engine_rank_bytes = 100;
  profile.link.ranks = 2;
  EXPECT_EQ(engine_bytes_of_groups(profile, {.data = 2}), 0U) << "the world's";
  EXPECT_EQ(engine_bytes_of_groups(profile, {.pipeline = 2}), 1300U) << "one of one rank along data";
  EXPECT_EQ(engine_bytes_of_groups(profile, {.pipeline = 2, .data = 2, .tensor = 4}), 1400U + 1400U + 1600U);
  // One group of one rank along data, and one for parameters of all ranks; with experts also their mesh and
  // tokens.
  EXPECT_EQ(engine_bytes_of_groups(profile, {.context = 2}), 1300U + 1400U);
  EXPECT_EQ(engine_bytes_of_groups(profile, {.expert = 2}), 1300U + 1400U + 2 * (1300U + 1400U));
}

TEST(MeshStep, ReplicasShareOptimizerStateAndReduceGradients) {
  const cost::Profile profile = cost::synthetic_profile("gpt:layers=4,dim=256,seq=64,rate=1e9,batch=8", 4);
  MeshShape shape{.pipeline = 2, .data = 2, .samples = 8};
  const PipelineCosts costs(profile, shape, same_links(profile.link), 4);
  PipelineChoice choice = choice_of(costs, "1f1b", 4);
  const PipelineForecast ddp = costs.forecast(choice);
  choice.strategies.assign(2, cost::Strategy::zero1);
  const PipelineForecast zero1 = costs.forecast(choice);
  EXPECT_LT(zero1.ranks[0].update_s, ddp.ranks[0].update_s);
  const double gradients = 2.0 * static_cast<double>(profile.units[0].gradient_bytes);
  EXPECT_NEAR(ddp.ranks[0].exposed_s, profile.link.seconds(cost::Collective::all_reduce, gradients, 2),
              1e-12);
  shape.data = 1;
  EXPECT_EQ(PipelineCosts(profile, shape, same_links(profile.link), 4).forecast(choice).ranks[0].exposed_s,
            0);
}

TEST(MeshStep, DividedLayersComputeLessAndCommunicate) {
  const cost::Profile profile =
      cost::synthetic_profile("gpt:layers=2,dim=256,seq=64,heads=8,batch=8,rate=1e9", 4);
  const cost::Profile two = part_of_profile(profile, {.tensor = 2}, 8, same_links(profile.link));
  const double message = 2 * profile.link.seconds(cost::Collective::all_reduce, 8.0 * 64 * 256 * 2, 2);
  EXPECT_NEAR(two.units[0].forward_s, profile.units[0].forward_s / 2 + message, 1e-12);
  EXPECT_NEAR(two.units[0].backward_s, profile.units[0].backward_s / 2 + message, 1e-12);
  EXPECT_EQ(two.units[0].parameter_bytes, profile.units[0].parameter_bytes / 2);
  EXPECT_NEAR(static_cast<double>(two.units[0].activation_bytes),
              static_cast<double>(profile.units[0].activation_bytes) * 22 / 34, 2);
  EXPECT_THROW(part_of_profile(profile, {.tensor = 3}, 8, same_links(profile.link)), UsageError);
  EXPECT_THROW(part_of_profile(cost::random_profile(1, 4, 4), {.tensor = 2}, 1, same_links(profile.link)),
               UsageError);
}

TEST(MeshStep, DividedSequencesKeepSharesAndPassKeys) {
  const cost::Profile profile =
      cost::synthetic_profile("gpt:layers=2,dim=256,seq=64,heads=8,batch=8,rate=1e9", 4);
  const MeshShape shape{.samples = 8, .context = 4};
  const cost::Profile part = part_of_profile(profile, shape, 8, same_links(profile.link));
  const cost::UnitProfile &whole = profile.units[0], &piece = part.units[0];
  EXPECT_EQ(piece.parameter_bytes, whole.parameter_bytes);
  EXPECT_EQ(piece.activation_bytes, whole.activation_bytes / 4);
  EXPECT_EQ(piece.checkpointed_activation_bytes, whole.checkpointed_activation_bytes / 4);
  // A rank's keys and values: twice a quarter of a layer's output.
  const double message = profile.link.message_seconds(2 * 8.0 * 64 * 256 * 2 / 4);
  EXPECT_NEAR(piece.forward_s, whole.forward_s / 4 + 3 * message, 1e-12);
  EXPECT_NEAR(piece.backward_s, whole.backward_s / 4 + 7 * message, 1e-12);
  const auto costs = layer_costs(profile, shape, 8, same_links(profile.link));
  EXPECT_EQ(costs[0].output_bytes, profile.layers[0].output_bytes / 4);
  EXPECT_THROW(part_of_profile(profile, {.context = 3}, 8, same_links(profile.link)), UsageError);
  EXPECT_THROW(part_of_profile(profile, {.tensor = 2, .context = 2}, 8, same_links(profile.link)),
               UsageError);
}

TEST(MeshStep, SpreadExpertsAreNotReducedWithAll) {
  cost::Profile profile = equal_layers(4, 8);
  for (cost::LayerProfile& layer : profile.layers) {
    cost::LayerPart part = layer.parts.front();
    part.dimension = "expert";
    part.ranks = 2;
    part.expert_parameter_bytes = part.parameter_bytes / 4;
    part.parameter_bytes = part.parameter_bytes / 4 * 3;
    part.forward_messages = 2;
    part.forward_message_bytes = 2000;
    layer.parts.push_back(part);
  }
  profile.link = cost::ring_link(2, 1e-6, 1e9);
  profile.link.all_to_all = cost::CostCurve({{1, 1e-5}, {1 << 20, 1e-3}}, "all_to_all");
  const MeshLinks links = same_links(profile.link);
  const cost::Profile part = part_of_profile(profile, {.expert = 2}, 8, links);
  const cost::UnitProfile &whole = profile.units[0], &spread = part.units[0];
  EXPECT_NEAR(static_cast<double>(spread.parameter_bytes), static_cast<double>(whole.parameter_bytes) * 0.75,
              8);
  EXPECT_NEAR(static_cast<double>(spread.own_gradient_bytes), static_cast<double>(spread.gradient_bytes) / 3,
              8);
  EXPECT_EQ(spread.strategies, std::vector<cost::Strategy>{cost::Strategy::ddp});
  EXPECT_NEAR(spread.forward_s, whole.forward_s + 2 * profile.link.all_to_all.seconds(1000), 1e-12);
  // With copies along data experts are reduced among the copies.
  const auto costs = layer_costs(profile, {.data = 2, .expert = 2}, 8, links);
  EXPECT_NEAR(static_cast<double>(costs[0].own_gradient_bytes),
              static_cast<double>(costs[0].gradient_bytes) / 3 * (1 - 0.5 / 0.75), 8);
}

TEST(MeshStep, WithoutLayersUnitsAreLayers) {
  cost::Profile profile = cost::random_profile(3, 6, 4);
  profile.batch_size = 8;
  const auto costs = layer_costs(profile, {}, 2, same_links(profile.link));
  ASSERT_EQ(costs.size(), 6);
  EXPECT_DOUBLE_EQ(costs[2].forward_s, profile.units[2].forward_s / 4);
  EXPECT_DOUBLE_EQ(costs[2].backward_input_s, costs[2].backward_weight_s);
  EXPECT_EQ(costs[2].parameter_bytes, profile.units[2].parameter_bytes);
}

TEST(MeshStep, NoStepIsShorterThanItsBound) {
  const cost::Profile profile = equal_layers(8, 16);
  for (const char* schedule : {"gpipe", "1f1b", "interleaved", "zb_h1", "zb_v"}) {
    for (const int micro_batches : {1, 4, 16}) {
      const MeshShape shape{.pipeline = 4, .samples = 16};
      const PipelineCosts costs(profile, shape, same_links(profile.link), micro_batches);
      EXPECT_GE(costs.forecast(choice_of(costs, schedule, micro_batches)).step_s * (1 + 1e-9),
                costs.least_step_s(micro_batches))
          << schedule << micro_batches;
    }
  }
}

TEST(MeshStep, ChoicesThatCannotBeAreRefused) {
  const cost::Profile profile = equal_layers(4, 8);
  const MeshShape shape{.pipeline = 2, .samples = 8};
  EXPECT_THROW(PipelineCosts(profile, shape, same_links(profile.link), 16), UsageError);
  const PipelineCosts costs(profile, shape, same_links(profile.link), 4);
  PipelineChoice choice = choice_of(costs, "1f1b", 4);
  choice.first = {0, 4};
  EXPECT_THROW(costs.forecast(choice), UsageError);
}

}  // namespace
}  // namespace rondo::simulate::mesh_step_test
