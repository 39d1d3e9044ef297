// Memory per rank of each strategy, as seen by the memory tracker, compared with the table of ZeRO
// (Rajbhandari et al., 2020): P bytes of parameters, G of gradients, O of optimizer state, each whole or
// sharded.

#include <gtest/gtest.h>

#include <mutex>

#include "rondo/backend/memory/tracked_memory.h"
#include "tests/parallel/sharded/layers.h"

namespace rondo::testing::sharded_memory_test {
namespace {

// A model of units only, with almost no activations.
struct StackImpl : torch::nn::Module {
  StackImpl(std::int64_t width, int units) {
    for (int i = 0; i < units; ++i) {
      layers.push_back(register_module("layer" + std::to_string(i), Unit<Residual>(width)));
    }
  }
  at::Tensor forward(at::Tensor x) {
    for (auto& layer : layers) x = layer(x);
    return x;
  }
  std::vector<Unit<Residual>> layers;
};
TORCH_MODULE(Stack);

struct Shape {
  std::int64_t width;
  int units;
  // Bytes of float32 parameters P, equal to G; AdamW's O is twice that.
  double unit_bytes() const { return 4.0 * static_cast<double>(width * (width + 2)); }
  double model_bytes() const { return units * unit_bytes(); }
};

// Sums over all ranks.
struct Measured {
  std::mutex mutex;  // protects the sums
  double kept = 0;   // between backward and the optimizer's step, without communication buffers
  double peak = 0;   // of a step, including everything
};

void measure(Measured& measured, const std::string& strategy, const std::string& backend, int ranks,
             const Shape& shape) {
  track_cpu_allocations();
  ShardedOptions options;
  options.prefetch = 1;
  const Bytes unit_bytes{static_cast<std::size_t>(shape.unit_bytes())};
  options.in_flight_bytes = unit_bytes;
  run_ranks(ranks, backend, [&](Context& context) {
    const auto made = testing::make_strategy(strategy, context, options,
                                             {.bucket_bytes = unit_bytes, .first_bucket_bytes = unit_bytes});
    Stack model(shape.width, shape.units);
    const auto prepared = made->prepare(model.ptr());
    const auto optimizer = make_adamw(prepared->module());
    MemoryUsage kept;
    for (int step = 0; step < 2; ++step) {  // the first step allocates the optimizer's state
      barrier(context.world());
      replica_memory_tracker().reset_peak();
      optimizer->zero_grad();
      prepared->begin_step({.samples = 1});
      model(at::ones({1, shape.width})).sum().backward();
      prepared->finish_backward();
      kept = replica_memory_tracker().usage();
      prepared->step(*optimizer);
    }
    const std::lock_guard lock(measured.mutex);
    measured.kept += static_cast<double>(kept.total - kept[MemoryCategory::communication]);
    measured.peak += static_cast<double>(replica_memory_tracker().peak_total());
  });
}

// Data that every rank has a copy of; other data exist once over all ranks.
struct Row {
  std::string strategy;
  bool parameters, gradients, optimizer;
  bool mapped = true;  // on one host, parameters that all ranks hold exist once
};

std::ostream& operator<<(std::ostream& out, const Row& row) { return out << row.strategy; }

double kept_bytes(const Row& row, const Shape& shape, bool one_host, int ranks) {
  const int parameters = row.parameters && !(one_host && row.mapped) ? ranks : 1;
  return shape.model_bytes() * (parameters + (row.gradients ? ranks : 1) + 2 * (row.optimizer ? ranks : 1));
}

std::vector<Row> table() {
  return {{"ddp", true, true, true, /*mapped=*/false},
          {"zero1", true, true, false},
          {"zero2", true, false, false},
          {"zero3", false, false, false},
          {"zero3_keep", false, false, false}};
}

class StrategyBytes : public ::testing::TestWithParam<Row> {};

INSTANTIATE_TEST_SUITE_P(Strategies, StrategyBytes, ::testing::ValuesIn(table()),
                         [](const ::testing::TestParamInfo<Row>& info) { return info.param.strategy; });

TEST_P(StrategyBytes, KeptByTheRanksFollowTheTable) {
  const Shape shape{.width = 256, .units = 6};
  for (const std::string backend : {"native", "gloo"}) {
    for (const int ranks : {2, 4}) {
      Measured measured;
      measure(measured, GetParam().strategy, backend, ranks, shape);
      const double kept = measured.kept;
      const double expected = kept_bytes(GetParam(), shape, backend == "native", ranks);
      EXPECT_NEAR(kept, expected, 0.05 * expected) << backend << ", " << ranks << " ranks";
    }
  }
}

// With many units, the few that are whole at a time are negligible.
TEST_P(StrategyBytes, PeaksFollowTheTable) {
  const Shape shape{.width = 64, .units = 120};
  constexpr int kRanks = 2;
  double expected = kept_bytes(GetParam(), shape, /*one_host=*/false, kRanks);
  // Parameters gathered for forward stay until backward.
  if (GetParam().strategy == "zero3_keep") expected += shape.model_bytes() * (kRanks - 1);
  Measured measured;
  measure(measured, GetParam().strategy, "gloo", kRanks, shape);
  const double peak = measured.peak;
  EXPECT_NEAR(peak, expected, 0.05 * expected) << (peak - expected) / shape.unit_bytes() / kRanks << " units";
}

}  // namespace
}  // namespace rondo::testing::sharded_memory_test
