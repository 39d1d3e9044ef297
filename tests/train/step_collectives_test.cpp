// Communication of a step besides its gradients: losses, samples and requests to stop. No rank waits for
// these messages before backward, and no rank sends any after its step.
#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/types.h>

#include <cmath>
#include <future>
#include <mutex>
#include <numeric>

#include "rondo/backend/registry.h"
#include "rondo/parallel/local_sgd/local_sgd_options.h"
#include "rondo/parallel/strategy_on_mesh.h"
#include "rondo/strategy/training.h"
#include "tests/backend/ranks.h"
#include "tests/train/digits.h"

namespace rondo::step_collectives_test {
namespace {

using testing::Digits;
using testing::Rows;
using testing::run_ranks;
using testing::small_model;

// Number of a rank's collectives over all of its groups. Used by the rank's own thread.
struct Calls {
  int all = 0;
  int of_step = 0;  // all-reduces of int64: announcements
};

// A backend that counts collectives. Operations that it does not forward throw, so that the count is
// complete.
class CountingEngine final : public c10d::Backend {
 public:
  using Work = c10::intrusive_ptr<c10d::Work>;
  CountingEngine(c10::intrusive_ptr<c10d::Backend> inner, Calls& calls)
      : Backend(inner->getRank(), inner->getSize()), inner_(std::move(inner)), calls_(calls) {}
  const std::string getBackendName() const override { return "counting"; }
  Work allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override {
    ++calls_.all;
    if (tensors.front().scalar_type() == at::kLong) ++calls_.of_step;
    return inner_->allreduce(tensors, options);
  }
  Work broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override {
    ++calls_.all;
    return inner_->broadcast(tensors, options);
  }
  Work allgather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                 const c10d::AllgatherOptions& options) override {
    ++calls_.all;
    return inner_->allgather(outputs, inputs, options);
  }
  Work _allgather_base(at::Tensor& output, at::Tensor& input,
                       const c10d::AllgatherOptions& options) override {
    ++calls_.all;
    return inner_->_allgather_base(output, input, options);
  }
  Work _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                            const c10d::ReduceScatterOptions& options) override {
    ++calls_.all;
    return inner_->_reduce_scatter_base(output, input, options);
  }
  // Messages between stages are not collectives.
  Work send(std::vector<at::Tensor>& tensors, int destination, int tag) override {
    return inner_->send(tensors, destination, tag);
  }
  Work recv(std::vector<at::Tensor>& tensors, int source, int tag) override {
    return inner_->recv(tensors, source, tag);
  }

 private:
  c10::intrusive_ptr<c10d::Backend> inner_;
  Calls& calls_;
};

// Runs `body` on ranks whose calls are counted.
void run_counted(int ranks, const std::function<void(Context&, const Calls&)>& body) {
  std::vector<Calls> calls(static_cast<std::size_t>(ranks));
  register_backend("counting native",
                   [&calls](const BackendRequest& request) {
                     const int rank = request.world_ranks.at(static_cast<std::size_t>(request.rank));
                     return c10::make_intrusive<CountingEngine>(make_backend("native", request),
                                                                calls.at(static_cast<std::size_t>(rank)));
                   },
                   {.progresses_in_background = false, .all_to_all = false});
  run_ranks(ranks, "counting native",
            [&](Context& context) { body(context, calls.at(static_cast<std::size_t>(context.rank()))); });
}

Model gpt(int experts) {
  static std::mutex mutex;  // the default generator is shared
  const std::lock_guard lock(mutex);
  torch::manual_seed(3);
  return make_model("gpt", {{"vocabulary", 12},
                            {"context", 6},
                            {"layers", 2},
                            {"heads", 2},
                            {"width", 8},
                            {"dropout", 0.0},
                            {"experts", experts}});
}

std::shared_ptr<const Dataset> sentences() {
  const at::Tensor tokens = at::randint(12, {24, 7}, at::detail::createCPUGenerator(5), at::kLong);
  return std::make_shared<Rows>(tokens.narrow(1, 0, 6).contiguous(), tokens.narrow(1, 1, 6).contiguous(), 12);
}

std::unique_ptr<Strategy> on_mesh(const Context& context, const Mesh& mesh) {
  return strategy_on_mesh(all_strategies(), "ddp", context.mesh(mesh), [](const std::string& name) {
    return name == "pipeline" ? OptionValues{{"micro-batches", "2"}} : OptionValues{};
  });
}

Recipe recipe_of(std::function<Model()> model) {
  return {.model = std::move(model),
          .loss = make_loss("cross_entropy"),
          .optimizer = [](torch::nn::Module& module) {
            return make_optimizer({.name = "sgd", .learning_rate = 0.1}, module);
          }};
}

std::vector<Batch> window_of(const Dataset& data, std::int64_t samples) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(samples));
  std::iota(numbers.begin(), numbers.end(), 0);
  return {data.get(numbers)};
}

struct Counted {
  int all = 0;
  int announcements = 0;
  int after_step = 0;  // since the optimizer's step
  StepTotals totals;
};

// Runs a step in which the last rank was asked to stop.
Counted count_step(Training& training, const std::vector<Batch>& window, std::int64_t step,
                   const Context& context, const Calls& calls) {
  const Calls before = calls;
  Calls ended;
  StepSettings settings{.step = step};
  settings.stop_requested = [&] { return context.rank() + 1 == context.world_size(); };
  settings.on_phase = [&](StepPhase begins) {
    if (begins == StepPhase::end) ended = calls;
  };
  const StepResult result = training.train_step(window, settings);
  return {.all = calls.all - before.all,
          .announcements = calls.of_step - before.of_step,
          .after_step = calls.all - ended.all,
          .totals = result.totals};
}

// All gradients are in one bucket.
TEST(StepCollectives, OfDdpWithOneBucketAreTwo) {
  constexpr int kRanks = 3;
  run_counted(kRanks, [](Context& context, const Calls& calls) {
    const auto strategy = all_strategies().make("ddp", context);
    const auto training = strategy->prepare(recipe_of([] { return small_model(); }));
    const std::vector<Batch> window = window_of(Digits(8), 2);
    count_step(*training, window, 0, context, calls);  // ranks also agree on the order of gradients
    for (int step = 1; step < 18; ++step) {            // includes steps in which ranks compare parameters
      const Counted counted = count_step(*training, window, step, context, calls);
      EXPECT_EQ(counted.all, 2) << "step " << step << " of rank " << context.rank();
      EXPECT_EQ(counted.after_step, 0) << "step " << step << " of rank " << context.rank();
      EXPECT_EQ(counted.totals.samples, 2 * kRanks);
      EXPECT_TRUE(counted.totals.stop);
    }
  });
}

// A synchronous step, two local ones, and the end of a period of three.
TEST(StepCollectives, OfLocalSgdAreThoseOfAveragingSteps) {
  constexpr int kRanks = 2;
  run_counted(kRanks, [](Context& context, const Calls& calls) {
    const auto strategy = all_strategies().make("local_sgd", context,
                                                LocalSgdOptions{.sync_period = 3, .synchronous_steps = 1});
    const auto training = strategy->prepare(recipe_of([] { return small_model(); }));
    const std::vector<Batch> window = window_of(Digits(8), 2);
    const std::vector<int> expected = {2, 0, 0, 2};  // gradients or parameters, and the announcement
    for (std::size_t step = 0; step < expected.size(); ++step) {
      const Counted counted = count_step(*training, window, static_cast<std::int64_t>(step), context, calls);
      const bool meets = expected[step] > 0;
      EXPECT_EQ(counted.all, expected[step]) << "step " << step << " of rank " << context.rank();
      EXPECT_EQ(counted.announcements, meets ? 1 : 0) << "step " << step << " of rank " << context.rank();
      EXPECT_EQ(counted.totals.samples, meets ? 2 * kRanks : 2) << "step " << step;
      EXPECT_EQ(counted.totals.stop, meets) << "step " << step;
    }
  });
}

// One announcement of all ranks; along data, if there are replicas, another one that weights gradients.
TEST(StepCollectives, OfAMeshAnnounceOnceWithoutTrailingCalls) {
  struct Case {
    Mesh mesh;
    int announcements;
    int replicas;
  };
  const std::vector<Case> cases = {{{{"tensor", 2}}, 1, 1},
                                   {{{"data", 2}, {"tensor", 2}}, 2, 2},
                                   {{{"pipeline", 2}}, 1, 1},
                                   {{{"data", 2}, {"pipeline", 2}}, 2, 2},
                                   {{{"pipeline", 2}, {"tensor", 2}}, 1, 1}};
  for (const Case& each : cases) {
    int ranks = 1;
    for (const MeshDimension& dimension : each.mesh) ranks *= dimension.size;
    std::vector<double> losses(static_cast<std::size_t>(ranks));
    run_counted(ranks, [&](Context& context, const Calls& calls) {
      const std::string where = to_string(each.mesh) + ", rank " + std::to_string(context.rank());
      const auto strategy = on_mesh(context, each.mesh);
      const auto training = strategy->prepare(recipe_of([] { return gpt(0); }));
      const std::vector<Batch> window = window_of(*sentences(), 4);
      count_step(*training, window, 0, context, calls);
      const Counted counted = count_step(*training, window, 1, context, calls);
      EXPECT_EQ(counted.announcements, each.announcements) << where;
      EXPECT_EQ(counted.after_step, 0) << where;
      EXPECT_EQ(counted.totals.samples, 4 * each.replicas) << where;
      EXPECT_EQ(counted.totals.predictions, 24 * each.replicas) << where;
      EXPECT_TRUE(counted.totals.stop) << where;
      losses[static_cast<std::size_t>(context.rank())] =
          counted.totals.loss / static_cast<double>(counted.totals.predictions);
    });
    // Near the loss of a guess among twelve tokens, and the same on all ranks.
    EXPECT_NEAR(losses.front(), std::log(12.0), 1.0) << to_string(each.mesh);
    for (const double loss : losses) EXPECT_EQ(loss, losses.front()) << to_string(each.mesh);
  }
}

// A gate that lets rank 0 finish a call before any other rank starts it.
class Lead {
 public:
  // Runs `call` on every rank, on rank 0 first. Returns false if rank 0's call waits for others.
  bool first(const Context& context, const std::function<void()>& call) {
    if (context.rank() == 0) {
      call();
      done_.set_value();
      return true;
    }
    const bool returned = waiting_.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
    call();
    return returned;
  }

 private:
  std::promise<void> done_;
  std::shared_future<void> waiting_{done_.get_future()};
};

TEST(StepCollectives, DoNotWaitToReportAStep) {
  const std::vector<Mesh> meshes = {{{"data", 2}},
                                    {{"tensor", 2}},
                                    {{"data", 2}, {"tensor", 2}},
                                    {{"pipeline", 2}},
                                    {{"data", 2}, {"expert", 2}}};
  for (const Mesh& mesh : meshes) {
    int ranks = 1;
    for (const MeshDimension& dimension : mesh) ranks *= dimension.size;
    Lead beginning, announcing;
    run_ranks(ranks, "native", [&](Context& context) {
      const auto strategy = on_mesh(context, mesh);
      const bool has_experts = size_along(mesh, "expert") > 1;
      const auto training = strategy->prepare(recipe_of([&] { return gpt(has_experts ? 4 : 0); }));
      PreparedModel& prepared = training->prepared();
      EXPECT_TRUE(beginning.first(context, [&] { prepared.begin_step({.samples = 4}); })) << to_string(mesh);
      const StepTotals mine{.samples = 4, .stop = context.rank() + 1 == context.world_size()};
      EXPECT_TRUE(announcing.first(context, [&] { prepared.announce(mine); })) << to_string(mesh);
      EXPECT_TRUE(prepared.totals().stop) << to_string(mesh) << ", rank " << context.rank();
    });
  }
}

TEST(StepCollectives, DoNotWaitToReportASynchronousStep) {
  Lead beginning, announcing;
  run_ranks(2, "native", [&](Context& context) {
    const auto strategy =
        all_strategies().make("local_sgd", context, LocalSgdOptions{.synchronous_steps = 1});
    const auto training = strategy->prepare(recipe_of([] { return small_model(); }));
    PreparedModel& prepared = training->prepared();
    const std::vector<Batch> window = window_of(Digits(8), 2);
    EXPECT_TRUE(beginning.first(context, [&] { prepared.begin_step({.samples = 4}); }));
    EXPECT_TRUE(announcing.first(context, [&] { prepared.announce({.samples = 4, .stop = true}); }));
    training->model().forward.run(window.front().inputs).front().sum().backward();
    prepared.finish_backward();
    EXPECT_EQ(prepared.totals().samples, 8);
    EXPECT_TRUE(prepared.totals().stop);
  });
}

}  // namespace
}  // namespace rondo::step_collectives_test
