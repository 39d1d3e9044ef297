// Two jobs in one process run concurrently as threads and do not affect each other.
#include <gtest/gtest.h>

#include <barrier>
#include <thread>

#include "rondo/backend/memory/tracked_memory.h"
#include "rondo/base/text.h"
#include "rondo/memory/scope.h"
#include "tests/parallel/sharded/layers.h"
#include "tests/parallel/strategy_told.h"

namespace rondo::testing::two_contexts_test {
namespace {

struct Job {
  std::string strategy;
  std::string engine;
  int ranks;
  TrainingPlan plan;
};

std::vector<Job> jobs() {
  return {{"ddp", "native", 2, {.steps = 6}},
          {"zero3", "native", 3, {.steps = 4, .accumulate = 2, .clip_norm = 0.1}},
          {"zero2", "gloo", 2, {.steps = 5}}};
}

// Trained parameters of each rank.
using Results = std::vector<std::vector<at::Tensor>>;

Results train(const Job& job, const std::function<void(Context&)>& between = {}) {
  Results results(static_cast<std::size_t>(job.ranks));
  run_ranks(job.ranks, job.engine, [&](Context& context) {
    const MemoryScope scope(MemoryCategory::other, job.strategy);
    ShardedOptions options;
    options.find_unused_parameters = true;
    const auto strategy = testing::make_strategy(job.strategy, context, options);
    Layers model(40);
    const auto prepared = strategy->prepare(model.ptr());
    const auto optimizer = make_adamw(prepared->module());
    train_steps(context, *prepared, model, *optimizer, job.plan);
    if (between) between(context);
    prepared->unshard();
    const MemoryScope kept(MemoryCategory::other, "results");
    for (const at::Tensor& parameter : model->parameters())
      results[static_cast<std::size_t>(context.rank())].push_back(parameter.detach().clone());
  });
  return results;
}

TEST(TwoContexts, JobsInOneProcessTrainIndependently) {
  track_cpu_allocations();
  std::vector<Results> alone;
  for (const Job& job : jobs()) alone.push_back(train(job));

  std::barrier everyone(2 + 3 + 2);
  std::vector<Results> together(jobs().size());
  tests::run_rank_threads(static_cast<int>(jobs().size()), [&](int number) {
    const Job job = jobs()[static_cast<std::size_t>(number)];
    together[static_cast<std::size_t>(number)] = train(job, [&](Context& context) {
      const at::Tensor own = at::empty({1000});
      everyone.arrive_and_wait();  // all models, optimizers and these tensors exist
      const MemoryUsage usage = replica_memory_tracker().usage();
      EXPECT_GE(total_of(usage.of_unit(job.strategy)), 4000U);
      for (const Job& other : jobs()) {
        if (other.strategy == job.strategy) continue;
        EXPECT_EQ(total_of(usage.of_unit(other.strategy)), 0U) << other.strategy << " in " << job.strategy;
      }
      // A rank's memory limit applies to no other rank.
      if (number == 0 && context.rank() == 1)
        replica_memory_tracker().set_limit(Bytes{usage.total} + KiB(100));
      everyone.arrive_and_wait();
      if (number == 0 && context.rank() == 1) {
        EXPECT_THROW(at::empty({static_cast<std::int64_t>(MiB(1).count)}), MemoryLimitError);
        replica_memory_tracker().set_limit({});
      } else {
        EXPECT_NO_THROW(at::empty({static_cast<std::int64_t>(MiB(1).count)}));
      }
      everyone.arrive_and_wait();
    });
  });
  for (std::size_t job = 0; job < together.size(); ++job) {
    for (std::size_t rank = 0; rank < together[job].size(); ++rank)
      EXPECT_EQ(largest_difference(together[job][rank], alone[job][rank]), 0) << job << " rank " << rank;
  }
}

// One thread has a context of each job and selects one by enter().
TEST(TwoContexts, AThreadSaysForWhichContextItWorks) {
  track_cpu_allocations();
  const Context first = init({.backend = "native"});
  const Context second = init({.backend = "native"});
  const auto bytes_of_unit = [](const std::string& unit) {
    return total_of(replica_memory_tracker().usage().of_unit(unit));
  };
  const MemoryScope scope(MemoryCategory::parameters, "second");
  const at::Tensor of_second = at::empty({1000});
  EXPECT_EQ(bytes_of_unit("second"), 4000U);
  first.enter();
  EXPECT_EQ(bytes_of_unit("second"), 0U);
  const MemoryScope other(MemoryCategory::parameters, "first");
  const at::Tensor of_first = at::empty({500});
  EXPECT_EQ(bytes_of_unit("first"), 2000U);
  second.enter();
  EXPECT_EQ(bytes_of_unit("first"), 0U);
  EXPECT_EQ(bytes_of_unit("second"), 4000U);
  first.enter();
}

}  // namespace
}  // namespace rondo::testing::two_contexts_test
