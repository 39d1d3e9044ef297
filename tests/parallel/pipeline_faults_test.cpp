// Kills a rank with SIGKILL during a pipeline step: all other ranks name it. Runs a subset of the slots by
// default, and every slot of 1f1b on 2 to 4 ranks with RONDO_FAULTS=all (`make faults`).
#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "rondo/backend/engine/store_adapter.h"
#include "rondo/channel/shared_store.h"
#include "rondo/parallel/registry.h"
#include "rondo/pipeline/schedule.h"
#include "rondo/strategy/training.h"
#include "tests/collective/faulty_job.h"

namespace rondo::pipeline_faults_test {
namespace {

constexpr int kMicroBatches = 4;

// A layer that reports the beginning of its forward and backward passes.
struct WatchedLayerImpl : torch::nn::Module {
  explicit WatchedLayerImpl(std::function<void()> told) : visit(std::move(told)) {
    linear = register_module("linear", torch::nn::Linear(8, 8));
  }
  at::Tensor forward(const at::Tensor& x) {
    visit();
    at::Tensor y = torch::tanh(linear(x));
    if (y.requires_grad()) y.register_hook([this](const at::Tensor&) { visit(); });
    return y;
  }
  std::function<void()> visit;
  torch::nn::Linear linear{nullptr};
};
TORCH_MODULE(WatchedLayer);

struct Slot {
  int ranks = 2;
  int victim = 0;
  int number = 0;  // index among the victim's computations in a step
};

std::string text(const Slot& slot) {
  const pipeline::Schedule schedule = pipeline::make_schedule("1f1b", slot.ranks, kMicroBatches);
  int left = slot.number;
  for (const pipeline::Action& action : schedule.actions[static_cast<std::size_t>(slot.victim)]) {
    const bool computes = action.kind <= pipeline::ActionKind::backward_weight;
    if (computes && left-- == 0)
      return "rank " + std::to_string(slot.victim) + " of " + std::to_string(slot.ranks) + " in " +
             to_string(action);
  }
  return "no such slot";
}

// Runs steps forever; the victim calls `strike` in its slot of the second step.
void train(const Slot& slot, int rank, const Context& context, const std::function<void()>& strike,
           const std::function<void()>& on_error) {
  int step = 0, computed = 0;
  const auto visit = [&] {
    if (rank == slot.victim && step == 1 && computed == slot.number) strike();
    ++computed;
  };
  const auto strategy = all_strategies().make(
      "pipeline", context,
      OptionValues{{"pipeline-schedule", "1f1b"}, {"micro-batches", std::to_string(kMicroBatches)}});
  const auto trained = strategy->prepare(
      {.model =
           [&] {
             torch::nn::Sequential layers;
             for (int layer = 0; layer < slot.ranks; ++layer) layers->push_back(WatchedLayer(visit));
             return Model{.name = "watched",
                          .config = nlohmann::json::object(),
                          .module = layers.ptr(),
                          .forward = [raw = layers.get()](const at::Tensor& x) { return raw->forward(x); }};
           },
       .optimizer = [](torch::nn::Module& module) -> std::unique_ptr<torch::optim::Optimizer> {
         return std::make_unique<torch::optim::SGD>(module.parameters(), 0.1);
       }});
  Batch batch{.inputs = {torch::ones({kMicroBatches, 8})},
              .targets = {torch::zeros({kMicroBatches}, torch::kLong)}};
  batch.samples = kMicroBatches;
  for (;; ++step) {
    computed = 0;
    try {
      trained->train_step({&batch, 1}, {.step = step});
    } catch (...) {
      on_error();
      throw;
    }
  }
}

std::vector<Slot> slots() {
  std::vector<Slot> all, part;
  for (int ranks = 2; ranks <= 4; ++ranks) {
    for (int victim = 0; victim < ranks; ++victim) {
      for (int number = 0; number < 2 * kMicroBatches; ++number) all.push_back({ranks, victim, number});
    }
  }
  if (tests::all_faults()) return all;
  for (std::size_t i = 0; i < all.size(); i += 5) part.push_back(all[i]);
  return part;
}

TEST(PipelineFaults, AllNameRankKilledInAnySlot) {
  tests::FaultRecord record;
  for (const Slot& slot : slots()) {
    const std::shared_ptr<Store> meeting = SharedStore::create();
    tests::FaultyJob job(text(slot), slot.ranks, slot.victim, SIGKILL);
    job.start<PeerLostError>([&](int rank, const std::function<void()>& strike) {
      at::set_num_threads(1);
      torch::manual_seed(1);
      InitOptions options;
      options.backend = "native";
      options.rank = rank;
      options.world_size = slot.ranks;
      options.store = c10::make_intrusive<StoreForC10d>(meeting);
      const Context context = init(options);
      train(slot, rank, context, strike, [&] { job.note_error(); });
    });
    record.finish(job);
  }
  EXPECT_EQ(record.wrong(), std::vector<std::string>());
}

}  // namespace
}  // namespace rondo::pipeline_faults_test
