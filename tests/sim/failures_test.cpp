// Ranks are killed, stopped or never join while their devices communicate over the simulated NCCL, where a
// collective without them never ends. The other ranks name them, end in time, and can continue without them.
#include <gtest/gtest.h>

#include <optional>

#include "rondo/backend/collectives.h"
#include "rondo/backend/engine/failure_record.h"
#include "rondo/backend/engine/store_adapter.h"
#include "tests/collective/faulty_job.h"
#include "tests/errors.h"
#include "tests/sim/ranks.h"
#include "tests/sim/training.h"

namespace rondo::sim::failures_test {
namespace {

Context joined(const std::shared_ptr<Store>& meeting, int rank, int size, Duration timeout,
               std::int64_t epoch = 0) {
  at::set_num_threads(1);
  replace_card_engine(kModule);
  InitOptions options;
  options.backend = "nccl";
  options.rank = rank;
  options.world_size = size;
  options.local_rank = rank;
  options.store = c10::make_intrusive<StoreForC10d>(meeting);
  options.timeout = timeout;
  options.epoch = epoch;
  device(0);
  return init(options);
}

at::Tensor value_on(int rank, std::int64_t elements = 3) {
  return at::full({elements}, 1.0, at::TensorOptions().dtype(at::kFloat).device(device(rank)));
}

c10::intrusive_ptr<c10d::Work> start_all_reduce(const at::Tensor& tensor, const Group& group) {
  std::vector<at::Tensor> tensors{tensor};
  return group.backend()->allreduce(tensors, {});
}

// Prints the survivors' times, and returns whether all were correct.
bool ended_well(tests::FaultyJob& job, const std::string& name, double longest_ms) {
  const bool right = job.finish();
  const double named = job.milliseconds(), ended = job.milliseconds_since_error();
  printf("%-44s named by all after %6.1f ms, all have ended %6.1f ms later\n", name.c_str(), named, ended);
  fflush(stdout);
  // Only checks a limit that a loaded machine keeps: without an abort no rank would end at all.
  return right && named < longest_ms;
}

constexpr double kLongest = 60'000;

// The host waits for its device while the peer is killed in the middle of a large collective.
TEST(SimFailures, ReleasesHostThatWaitsForItsStream) {
  for (const int signal : {SIGKILL, SIGSTOP}) {
    const std::shared_ptr<Store> meeting = SharedStore::create();
    const std::string name = signal == SIGKILL ? "a large all_reduce, killed" : "a large all_reduce, stopped";
    tests::FaultyJob job(name, 3, 2, signal);
    job.start<CommunicationError>([&](int rank, const std::function<void()>& strike) {
      const Context context = joined(meeting, rank, 3, std::chrono::seconds(60));
      const at::Tensor tensor = value_on(rank, std::int64_t{16} << 20);
      for (int round = 0;; ++round) {
        try {
          const auto work = start_all_reduce(tensor, context.world());
          if (rank == 2 && round == 1) strike();
          work->wait();  // returns at once
          tensor.narrow(0, 0, 1).item<float>();
          throw_if_failed(*context.world().backend());
        } catch (const std::exception&) {
          job.note_error();
          throw;
        }
      }
    });
    EXPECT_TRUE(ended_well(job, name, kLongest)) << name;
  }
}

// After a failure all communicators of the job's groups are unusable.
TEST(SimFailures, AllGroupsOfALostRankFail) {
  const std::shared_ptr<Store> meeting = SharedStore::create();
  tests::FaultyJob job("groups", 3, 2, SIGKILL);
  job.start<PeerLostError>([&](int rank, const std::function<void()>& strike) {
    const Context context = joined(meeting, rank, 3, std::chrono::seconds(60));
    const Group pair = context.new_group({0, 1});
    const at::Tensor tensor = value_on(rank);
    start_all_reduce(tensor, context.world())->wait();
    if (pair.member()) start_all_reduce(tensor, pair)->wait();
    tensor.cpu();
    if (rank == 2) strike();
    start_all_reduce(tensor, context.world())->wait();
    tensor.cpu();
    try {
      throw_if_failed(*context.world().backend());
    } catch (const std::exception&) {
      job.note_error();
      // Rank 2 is not in the pair, so the error does not name one of its ranks.
      testing::expect_facts(testing::message_of([&] { start_all_reduce(tensor, pair); }),
                            {"rank 2", pair.name().c_str()});
      if (::testing::Test::HasFailure()) throw Error("the pair's failure");
      throw;
    }
  });
  EXPECT_TRUE(ended_well(job, "a group of the others", kLongest));
}

// The first operation exchanges the devices of all ranks, then creates the communicator; both wait for all
// ranks.
struct FirstOperation {
  std::string name;
  int signal;
  bool has_told_its_card;  // if true, the others are creating the communicator
};

TEST(SimFailures, NamesRankLostBeforeItsFirstOperation) {
  for (const FirstOperation& each :
       {FirstOperation{"before its card is known, killed", SIGKILL, false},
        FirstOperation{"while communicators are made, killed", SIGKILL, true},
        FirstOperation{"while communicators are made, stopped", SIGSTOP, true}}) {
    const std::shared_ptr<Store> meeting = SharedStore::create();
    const std::string& name = each.name;
    tests::FaultyJob job(name, 3, 2, each.signal);
    job.start<CommunicationError>([&](int rank, const std::function<void()>& strike) {
      const Context context = joined(meeting, rank, 3, std::chrono::seconds(60));
      const at::Tensor tensor = value_on(rank);
      if (rank == 2) {
        if (each.has_told_its_card) context.world().store()->set("card of rank 2", std::string("another"));
        // The simulated NCCL writes these when it creates a communicator.
        const auto begun = each.has_told_its_card
                               ? std::vector<std::string>{"device/device of 0", "device/device of 1"}
                               : std::vector<std::string>{"card of rank 0", "card of rank 1"};
        context.world().store()->wait(begun);
        strike();
      }
      try {
        start_all_reduce(tensor, context.world())->wait();
        tensor.cpu();
        throw_if_failed(*context.world().backend());
      } catch (const std::exception&) {
        job.note_error();
        throw;
      }
    });
    EXPECT_TRUE(ended_well(job, name, kLongest)) << name;
  }
}

// A subgroup of the job numbers its ranks from 0 again.
TEST(SimFailures, NamesRankByItsPlaceInTheGroup) {
  const std::shared_ptr<Store> meeting = SharedStore::create();
  tests::FaultyJob job("a part of the ranks", 4, 3, SIGKILL);
  job.start<PeerLostError>([&](int rank, const std::function<void()>& strike) {
    const Context context = joined(meeting, rank, 4, std::chrono::seconds(60));
    const Group part = context.new_group({1, 2, 3});
    std::optional<Group> pair;  // the ranks 1 and 3 of the job
    if (part.member()) pair = context.within(part).new_group({0, 2});
    const Group& group = pair && pair->member() ? *pair : context.world();
    const at::Tensor tensor = value_on(rank);
    start_all_reduce(tensor, context.world())->wait();
    tensor.cpu();
    if (rank == 3) strike();
    try {
      start_all_reduce(tensor, group)->wait();
      tensor.cpu();
      throw_if_failed(*group.backend());
    } catch (const PeerLostError& error) {
      job.note_error();
      testing::expect_facts(error.what(), {"rank 3", group.name().c_str()});
      EXPECT_EQ(error.ranks(), std::vector{rank == 1 ? 1 : 3}) << error.what();
      if (::testing::Test::HasFailure()) throw Error("the failure of a part");
      throw PeerLostError(error.what(), {3});
    }
  });
  EXPECT_TRUE(ended_well(job, "a part of the ranks", kLongest));
}

// A live rank that never joins is named at the deadline, also in a group of the job.
TEST(SimFailures, NamesMissingRankAtTheDeadline) {
  for (const bool in_part : {false, true}) {
    const std::shared_ptr<Store> meeting = SharedStore::create();
    EXPECT_EQ(tests::run_rank_processes(
                  3,
                  [&](Store& /*own*/, int rank) {
                    const Context context = joined(meeting, rank, 3, std::chrono::seconds(60));
                    const Group part = context.new_group(in_part ? std::vector{1, 2} : std::vector{0, 1, 2});
                    const auto await_others = [&] {
                      meeting->get("late", {Deadline::after(std::chrono::seconds(60)), nullptr});
                    };
                    if (!part.member()) return await_others();
                    const at::Tensor tensor = value_on(rank);
                    const auto add_up = [&] {
                      start_all_reduce(tensor, part)->wait();
                      tensor.cpu();
                      throw_if_failed(*part.backend());
                    };
                    add_up();
                    part.backend()->setTimeout(std::chrono::seconds(3));
                    if (rank == 1) await_others();
                    try {
                      add_up();
                      // The late rank may still meet the others' operation, before they abort it.
                      if (rank == 1) add_up();
                      ADD_FAILURE() << "no error on rank " << rank;
                    } catch (const TimeoutError& error) {
                      EXPECT_EQ(error.ranks(), std::vector{in_part ? 0 : 1}) << error.what();
                    }
                    meeting->set("late", "");
                  }),
              0);
  }
}

// A rank that ends orderly while the others do is no failure.
TEST(SimFailures, ARankThatLeavesInOrderIsNone) {
  EXPECT_EQ(run_ranks(
                3,
                [](Context& context) {
                  at::Tensor tensor = value_on(context.rank());
                  all_reduce(tensor, context.world());
                  EXPECT_EQ(tensor.cpu()[0].item<float>(), 3);
                  context.shutdown();
                },
                "nccl"),
            0);
}

// The moment of a step at which the victim receives its signal.
enum class Moment { in_backward, between_steps, from_outside };

struct Fault {
  std::string name;
  Way way;
  int ranks = 3;
  int signal = SIGKILL;
  Moment moment = Moment::in_backward;
};

std::ostream& operator<<(std::ostream& out, const Fault& fault) { return out << fault.name; }

constexpr std::int64_t kStruckAfter = 2;  // steps

// Trains until it sends the signal.
class Striking final : public Callback {
 public:
  Striking(const Fault& fault, bool strikes, std::function<void()> strike, Store& meeting)
      : fault_(fault), strikes_(strikes), strike_(std::move(strike)), meeting_(meeting) {}
  std::string name() const override { return "striking"; }
  void on_step_begin(Trainer& trainer, std::int64_t step) override {
    if (!strikes_ || step != kStruckAfter) return;
    if (fault_.moment == Moment::from_outside) meeting_.set("trains", "");
    if (fault_.moment == Moment::between_steps) strike_();
    if (fault_.moment != Moment::in_backward) return;
    // The gradients of later layers are in flight by then.
    trainer.model().module->parameters().front().register_hook([this](const at::Tensor& gradient) {
      strike_();
      return gradient;
    });
  }

 private:
  const Fault& fault_;
  const bool strikes_;
  const std::function<void()> strike_;
  Store& meeting_;
};

class Faults : public ::testing::TestWithParam<Fault> {};

std::vector<Fault> faults() {
  const Way ddp{.name = "ddp"}, zero3{.name = "zero3", .strategy = "zero3"};
  const Way hsdp{.name = "hsdp", .strategy = "hsdp", .options = {{"shard-ranks", "2"}}};
  return {
      {.name = "ddp_killed_in_backward", .way = ddp},
      {.name = "ddp_killed_between_steps", .way = ddp, .moment = Moment::between_steps},
      {.name = "ddp_killed_anywhere", .way = ddp, .moment = Moment::from_outside},
      {.name = "ddp_stopped_in_backward", .way = ddp, .signal = SIGSTOP},
      {.name = "zero3_killed_between_steps", .way = zero3, .moment = Moment::between_steps},
      {.name = "zero3_killed_anywhere", .way = zero3, .moment = Moment::from_outside},
      {.name = "zero3_stopped_anywhere", .way = zero3, .signal = SIGSTOP, .moment = Moment::from_outside},
      {.name = "hsdp_killed_anywhere", .way = hsdp, .ranks = 4, .moment = Moment::from_outside},
      {.name = "hsdp_stopped_between_steps",
       .way = hsdp,
       .ranks = 4,
       .signal = SIGSTOP,
       .moment = Moment::between_steps},
  };
}

INSTANTIATE_TEST_SUITE_P(OnSim, Faults, ::testing::ValuesIn(faults()),
                         [](const ::testing::TestParamInfo<Fault>& info) { return info.param.name; });

TEST_P(Faults, AreNamedByAll) {
  const Fault& fault = GetParam();
  const int victim = fault.ranks - 1;
  const std::shared_ptr<Store> meeting = SharedStore::create();
  tests::FaultyJob job(fault.name, fault.ranks, victim, fault.signal);
  job.start<CommunicationError>([&](int rank, const std::function<void()>& strike) {
    const Context context = joined(meeting, rank, fault.ranks, std::chrono::seconds(60));
    const std::unique_ptr<Strategy> strategy = strategy_of(fault.way, context);
    Trainer trainer(
        *strategy, [&] { return gpt(fault.way); }, device(rank), fault.way.precision);
    trainer.compile(testing::adamw());
    try {
      trainer.fit(tokens(5),
                  {.steps = 1 << 20,
                   .batch_size = 2,
                   .loader_threads = 0,
                   .callbacks = {std::make_shared<Striking>(fault, rank == victim, strike, *meeting)}});
    } catch (const CommunicationError& error) {
      job.note_error();
      // The error of a subgroup has the subgroup's rank numbers, and its text the world's.
      const bool named =
          std::string(error.what()).find("process of rank " + std::to_string(victim)) != std::string::npos;
      if (named && error.ranks().size() == 1) throw CommunicationError(error.what(), {victim});
      throw;
    }
  });
  if (fault.moment == Moment::from_outside) {
    meeting->get("trains", {Deadline::after(std::chrono::minutes(2)), nullptr});
    job.strike();
  }
  EXPECT_TRUE(ended_well(job, fault.name, kLongest));
}

// Trains a rank's share of the global batches up to a step, and returns the losses of all steps.
std::vector<double> fit(Trainer& trainer, std::int64_t until, std::int64_t batch_size,
                        const std::shared_ptr<Callback>& more = nullptr) {
  const auto recorder = std::make_shared<testing::Recorder>();
  FitOptions options{.steps = until, .batch_size = batch_size, .seed = 4, .loader_threads = 0};
  options.callbacks = {recorder};
  if (more) options.callbacks.push_back(more);
  trainer.fit(tokens(5), options);
  return recorder->losses();
}

// Trains in one process on the CPU with the same global batches: those of three ranks until `changed`, then
// of two.
std::vector<double> alone_on_cpu(const Way& way, std::int64_t changed) {
  const Context alone = init({.backend = "native", .init_method = "alone"});
  const auto strategy = all_strategies().make("one_device", alone, {});
  Trainer trainer(
      *strategy, [&] { return gpt(way); }, c10::kCPU);
  trainer.compile(testing::adamw());
  fit(trainer, changed, 6);
  return fit(trainer, kSteps, 4);
}

// Three ranks train, the last is killed, and two continue in a new world with new communicators.
void expect_to_go_on(Moment moment, bool from_checkpoint) {
  const TemporaryDirectory directory;
  const std::shared_ptr<Store> meeting = SharedStore::create();
  const Fault fault{.name = "rebuilt", .way = {.name = "rebuilt"}, .moment = moment};
  const auto body = [&](Store& /*own*/, int rank) {
    const Context context = joined(meeting, rank, 3, std::chrono::seconds(60));
    const auto strategy = strategy_of(fault.way, context);
    Trainer trainer(
        *strategy, [&] { return gpt(fault.way); }, device(rank));
    trainer.compile(testing::adamw());
    fit(trainer, 1, 2);
    trainer.save(directory.path(), {.keep = 1});
    const auto striking = std::make_shared<Striking>(
        fault, rank == 2, [] { kill(getpid(), SIGKILL); }, *meeting);
    EXPECT_THROW(fit(trainer, kSteps, 2, striking), PeerLostError);
    const Context next = joined(meeting, rank, 2, std::chrono::seconds(60), /*epoch=*/1);
    if (from_checkpoint) {
      EXPECT_THROW(trainer.rebuild(next), DataError);
      trainer.restore(directory.path());
    } else {
      trainer.rebuild(next);
    }
    const std::vector<double> losses = fit(trainer, kSteps, 2);
    const std::vector<double> wanted = alone_on_cpu(fault.way, from_checkpoint ? 1 : kStruckAfter);
    ASSERT_EQ(losses.size(), wanted.size());
    for (std::size_t i = 0; i < losses.size(); ++i)
      EXPECT_LE(relative(losses[i], wanted[i]), 1e-4) << "step " << i << " of rank " << rank;
  };
  EXPECT_EQ(tests::run_rank_processes(3, body), 1);  // the victim
}

TEST(SimFailures, SurvivorsContinueIfNoDeviceLostState) {
  expect_to_go_on(Moment::between_steps, /*from_checkpoint=*/false);
}

// The optimizer's step was queued after collectives that the failure has aborted.
TEST(SimFailures, SurvivorsResumeFromACheckpoint) {
  expect_to_go_on(Moment::in_backward, /*from_checkpoint=*/true);
}

}  // namespace
}  // namespace rondo::sim::failures_test
