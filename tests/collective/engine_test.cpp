#include "rondo/collective/shared_memory/engine.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

#include "rondo/base/error.h"
#include "rondo/base/random.h"
#include "rondo/base/text.h"
#include "rondo/channel/shared_store.h"
#include "rondo/channel/store.h"
#include "tests/collective/engine_threads.h"
#include "tests/rank_processes.h"

namespace rondo::shared_memory::engine_test {
namespace {

const Wait kForever{};

// Runs `body` on `size` ranks that are threads; rethrows the first exception.
void run_ranks(int size, const std::function<void(Engine&, SharedArena&)>& body) {
  const auto arena = std::make_shared<SharedArena>(GiB(1));
  run_engine_threads(size, arena, [&](Engine& engine) { body(engine, *arena); });
}

// A float buffer, ordinary or registered.
class Buffer {
 public:
  Buffer(SharedArena& arena, bool registered, std::size_t elements) : arena_(registered ? &arena : nullptr) {
    if (registered) {
      data_ = static_cast<float*>(arena.allocate(std::max<std::size_t>(elements, 1) * sizeof(float)));
    } else {
      heap_.resize(std::max<std::size_t>(elements, 1));
      data_ = heap_.data();
    }
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (arena_ != nullptr) arena_->release(data_);
  }
  float& operator[](std::size_t i) { return data_[i]; }
  std::byte* bytes() { return reinterpret_cast<std::byte*>(data_); }

 private:
  SharedArena* arena_;
  std::vector<float> heap_;
  float* data_;
};

// Returns rank `rank`'s contribution at position `i`, different everywhere.
float value(int rank, std::size_t i, int round = 0) {
  return static_cast<float>(
             (static_cast<std::size_t>(rank) * 7919 + i * 31 + static_cast<std::size_t>(round) * 17) % 1000) -
         500.0F;
}

// Two calls or one, which must not matter, even if ranks differ in it.
enum class Call { start_and_wait, run };

void finish(Engine& engine, CollectiveRequest request, Call call = Call::start_and_wait) {
  if (call == Call::run) return engine.run(std::move(request), engine.options().timeout);
  engine.wait(engine.start(std::move(request)), kForever);
}

enum class Registered { none, all, odd_ranks };

class EngineMatrix : public ::testing::TestWithParam<std::tuple<int, std::size_t, Registered>> {
 protected:
  int size() const { return std::get<0>(GetParam()); }
  std::size_t elements() const { return std::get<1>(GetParam()); }
  bool registered(int rank) const {
    const Registered mode = std::get<2>(GetParam());
    return mode == Registered::all || (mode == Registered::odd_ranks && rank % 2 == 1);
  }
};

TEST_P(EngineMatrix, AllReduceSumsInRankOrderOverRounds) {
  run_ranks(size(), [&](Engine& engine, SharedArena& arena) {
    for (int round = 0; round < 3; ++round) {
      Buffer buffer(arena, registered(engine.rank()), elements());
      for (std::size_t i = 0; i < elements(); ++i) buffer[i] = value(engine.rank(), i, round) * 1.1F;
      CollectiveRequest request{
          .kind = OperationKind::all_reduce, .type = DType::float32, .elements = elements()};
      request.input.base = request.output.base = buffer.bytes();
      finish(engine, request, (round + engine.rank()) % 2 == 0 ? Call::run : Call::start_and_wait);
      for (std::size_t i = 0; i < elements(); ++i) {
        float expected = value(0, i, round) * 1.1F;
        for (int r = 1; r < size(); ++r) expected += value(r, i, round) * 1.1F;
        ASSERT_EQ(buffer[i], expected) << "element " << i << " round " << round;
      }
    }
  });
}

TEST_P(EngineMatrix, WeightedAverage) {
  run_ranks(size(), [&](Engine& engine, SharedArena& arena) {
    Buffer buffer(arena, registered(engine.rank()), elements());
    for (std::size_t i = 0; i < elements(); ++i) buffer[i] = value(engine.rank(), i);
    CollectiveRequest request{.kind = OperationKind::all_reduce,
                              .type = DType::float32,
                              .reduction = Reduction::average,
                              .elements = elements()};
    request.input.base = request.output.base = buffer.bytes();
    request.weighted = true;
    request.weight = engine.rank() + 1;
    finish(engine, request);
    for (std::size_t i = 0; i < elements(); i += 97) {
      double sum = 0;
      double weights = 0;
      for (int r = 0; r < size(); ++r) {
        sum += (r + 1.0) * value(r, i);
        weights += r + 1.0;
      }
      ASSERT_NEAR(buffer[i], sum / weights, 1e-3);
    }
  });
}

TEST_P(EngineMatrix, AllGatherAndGatherAndBroadcast) {
  run_ranks(size(), [&](Engine& engine, SharedArena& arena) {
    const auto ranks = static_cast<std::size_t>(size());
    Buffer input(arena, registered(engine.rank()), elements());
    Buffer output(arena, registered(engine.rank()), elements() * ranks);
    for (std::size_t i = 0; i < elements(); ++i) input[i] = value(engine.rank(), i);
    const int root = size() - 1;
    for (const OperationKind kind : {OperationKind::all_gather, OperationKind::gather}) {
      CollectiveRequest request{.kind = kind, .type = DType::float32, .root = root, .elements = elements()};
      request.input.base = input.bytes();
      request.output = {output.bytes(), elements() * sizeof(float), {}};
      finish(engine, request);
      if (kind == OperationKind::gather && engine.rank() != root) continue;
      for (std::size_t i = 0; i < elements() * ranks; ++i) {
        ASSERT_EQ(output[i], value(static_cast<int>(i / elements()), i % elements()));
        output[i] = -1;
      }
    }
    CollectiveRequest request{
        .kind = OperationKind::broadcast, .type = DType::float32, .root = root, .elements = elements()};
    request.input.base = request.output.base = input.bytes();
    finish(engine, request);
    for (std::size_t i = 0; i < elements(); ++i) ASSERT_EQ(input[i], value(root, i));
  });
}

TEST_P(EngineMatrix, ReduceScatterAndScatterAndAllToAll) {
  run_ranks(size(), [&](Engine& engine, SharedArena& arena) {
    const auto ranks = static_cast<std::size_t>(size());
    const auto rank = static_cast<std::size_t>(engine.rank());
    const std::size_t n = elements();
    Buffer input(arena, registered(engine.rank()), n * ranks);
    Buffer output(arena, false, n * ranks);
    for (std::size_t i = 0; i < n * ranks; ++i) input[i] = value(engine.rank(), i);
    CollectiveRequest request{.kind = OperationKind::reduce_scatter, .type = DType::float32, .elements = n};
    request.input = {input.bytes(), n * sizeof(float), {}};
    request.output.base = output.bytes();
    finish(engine, request);
    for (std::size_t i = 0; i < n; ++i) {
      float expected = 0;
      for (int r = 0; r < size(); ++r) expected += value(r, rank * n + i);
      ASSERT_EQ(output[i], expected);
    }
    request.kind = OperationKind::scatter;
    request.root = 0;
    finish(engine, request);
    for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(output[i], value(0, rank * n + i));
    request.kind = OperationKind::all_to_all;
    request.output = {output.bytes(), n * sizeof(float), {}};
    finish(engine, request);
    for (std::size_t i = 0; i < n * ranks; ++i) {
      ASSERT_EQ(output[i], value(static_cast<int>(i / n), rank * n + i % n));
    }
  });
}

TEST_P(EngineMatrix, ReduceReachesTheRootOnly) {
  run_ranks(size(), [&](Engine& engine, SharedArena& arena) {
    Buffer buffer(arena, registered(engine.rank()), elements());
    for (std::size_t i = 0; i < elements(); ++i) buffer[i] = value(engine.rank(), i);
    CollectiveRequest request{.kind = OperationKind::reduce,
                              .type = DType::float32,
                              .reduction = Reduction::maximum,
                              .elements = elements()};
    request.input.base = request.output.base = buffer.bytes();
    finish(engine, request);
    for (std::size_t i = 0; i < elements(); ++i) {
      float expected = value(engine.rank(), i);
      for (int r = 0; engine.rank() == 0 && r < size(); ++r) expected = std::max(expected, value(r, i));
      ASSERT_EQ(buffer[i], expected);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    RanksSizesRegistration, EngineMatrix,
    ::testing::Combine(::testing::Values(1, 2, 3, 4, 7),
                       ::testing::Values<std::size_t>(0, 1, 5, 16, 100, 4096, 100000, 400001),
                       ::testing::Values(Registered::none, Registered::all, Registered::odd_ranks)));

// More operations in flight than there are slots, on all paths; waited for out of order.
TEST(Engine, KeepsManyOperationsUnderWay) {
  run_ranks(3, [](Engine& engine, SharedArena& arena) {
    constexpr int count = 200;
    std::vector<std::unique_ptr<Buffer>> buffers;
    std::vector<std::uint64_t> sequences;
    std::vector<std::size_t> sizes;
    RandomStream random(3);
    for (int k = 0; k < count; ++k) {
      sizes.push_back(random.below(k % 10 == 0 ? 150000 : 3000) + 1);
      buffers.push_back(std::make_unique<Buffer>(arena, k % 3 != 0, sizes.back()));
      for (std::size_t i = 0; i < sizes.back(); ++i) (*buffers.back())[i] = value(engine.rank(), i, k);
      CollectiveRequest request{
          .kind = OperationKind::all_reduce, .type = DType::float32, .elements = sizes.back()};
      request.input.base = request.output.base = buffers.back()->bytes();
      sequences.push_back(engine.start(request));
    }
    for (int k = count - 1; k >= 0; --k) {
      const auto at = static_cast<std::size_t>(k);
      engine.wait(sequences[at], kForever);
      for (std::size_t i = 0; i < sizes[at]; ++i) {
        ASSERT_EQ((*buffers[at])[i], value(0, i, k) + value(1, i, k) + value(2, i, k));
      }
    }
    EXPECT_EQ(engine.sequence(), static_cast<std::uint64_t>(count));
  });
}

TEST(Engine, RandomSequencesOfOperationsAgreeWithTheOracle) {
  for (int seed = 0; seed < 10; ++seed) {
    const int size = 2 + seed % 3;
    run_ranks(size, [&](Engine& engine, SharedArena& arena) {
      RandomStream shared(static_cast<std::uint64_t>(seed));  // same on all ranks
      RandomStream own(static_cast<std::uint64_t>(seed),
                       static_cast<std::uint64_t>(engine.rank()) + 1);  // differs
      for (int k = 0; k < 60; ++k) {
        const std::size_t n = shared.below(std::uint64_t{1} << shared.below(18)) + 1;
        Buffer buffer(arena, own.below(2) == 0, n);
        for (std::size_t i = 0; i < n; ++i) buffer[i] = value(engine.rank(), i, k);
        CollectiveRequest request{
            .kind = shared.below(2) == 0 ? OperationKind::all_reduce : OperationKind::broadcast,
            .type = DType::float32,
            .root = static_cast<int>(shared.below(static_cast<std::uint64_t>(size))),
            .elements = n};
        request.input.base = request.output.base = buffer.bytes();
        finish(engine, request);
        for (std::size_t i = 0; i < n; ++i) {
          float expected = 0;
          if (request.kind == OperationKind::broadcast) {
            expected = value(request.root, i, k);
          } else {
            for (int r = 0; r < size; ++r) expected += value(r, i, k);
          }
          ASSERT_EQ(buffer[i], expected) << "seed " << seed << " operation " << k << " element " << i;
        }
      }
    });
  }
}

TEST(Engine, MismatchShowsBothSidesOnEveryRank) {
  for (int variant = 0; variant < 4; ++variant) {
    std::vector<std::string> messages(3);
    run_ranks(3, [&](Engine& engine, SharedArena&) {
      std::vector<float> data(100);
      CollectiveRequest request{.kind = OperationKind::all_reduce, .type = DType::float32, .elements = 100};
      if (engine.rank() == 1) {
        if (variant == 0) request.elements = 50;
        if (variant == 1) request.type = DType::int32;
        if (variant == 2) request.reduction = Reduction::maximum;
        if (variant == 3) request.kind = OperationKind::broadcast;
      }
      request.input.base = request.output.base = reinterpret_cast<std::byte*>(data.data());
      try {
        finish(engine, request, engine.rank() == 2 ? Call::run : Call::start_and_wait);
      } catch (const CommunicationError& e) {
        messages[static_cast<std::size_t>(engine.rank())] = e.what();
      }
      EXPECT_THROW(finish(engine, request), CommunicationError) << "a broken group stays broken";
    });
    for (const std::string& message : messages) {
      EXPECT_NE(message.find("all_reduce(100 x float32, SUM)"), std::string::npos) << message;
    }
  }
}

TEST(Engine, RunsAnOperationWhileOthersAreUnderWay) {
  run_ranks(2, [](Engine& engine, SharedArena& arena) {
    Buffer large(arena, false, 3'000'000);
    Buffer small(arena, false, 1);
    CollectiveRequest request{
        .kind = OperationKind::all_reduce, .type = DType::float32, .elements = 3'000'000};
    request.input.base = request.output.base = large.bytes();
    const std::uint64_t sequence = engine.start(request);
    request.elements = 1;
    request.input.base = request.output.base = small.bytes();
    small[0] = 1 + static_cast<float>(engine.rank());
    engine.run(CollectiveRequest(request), engine.options().timeout);
    EXPECT_EQ(small[0], 3);
    engine.wait(sequence, kForever);
  });
}

TEST(Engine, TimeoutNamesWhoArrivedAndWhoIsMissing) {
  std::string message;
  run_ranks(2, [&](Engine& engine, SharedArena&) {
    if (engine.rank() == 1) {
      // Waits for a message that is never sent, so it is alive but absent from the barrier.
      std::byte byte{};
      EXPECT_THROW(
          engine.wait(*engine.start_receive({.peer = 0, .tag = 5, .data = &byte, .bytes = 1}), kForever),
          CommunicationError);
      return;
    }
    try {
      engine.wait(engine.start({}), {Deadline::after(std::chrono::milliseconds(50)), nullptr});
    } catch (const TimeoutError& e) {
      message = e.what();
      EXPECT_EQ(e.ranks(), std::vector<int>{1});
    }
  });
  EXPECT_NE(message.find("barrier"), std::string::npos) << message;
  EXPECT_NE(message.find("missing: rank 1"), std::string::npos) << message;
}

TEST(Engine, LateRankSeesTheTimeoutInEveryCall) {
  std::promise<void> gave_up;
  run_ranks(2, [&](Engine& engine, SharedArena&) {
    if (engine.rank() == 0) {
      EXPECT_THROW(engine.wait(engine.start({}), {Deadline::after(std::chrono::milliseconds(20)), nullptr}),
                   TimeoutError);
      gave_up.set_value();
      return;
    }
    gave_up.get_future().wait();
    std::byte byte{};
    EXPECT_THROW(engine.start_send({.peer = 0, .data = &byte, .bytes = 1}), TimeoutError);
    EXPECT_THROW(engine.run({}, std::chrono::seconds(60)), TimeoutError);
    EXPECT_THROW(engine.start({}), TimeoutError);
  });
}

TEST(Engine, MonitoredBarrierPassesOrNamesMissingRanks) {
  std::promise<void> judged;
  run_ranks(3, [&](Engine& engine, SharedArena&) {
    engine.monitored_barrier(std::chrono::seconds(60), false);
    if (engine.rank() == 0) {
      try {
        engine.monitored_barrier(std::chrono::milliseconds(20), true);
        ADD_FAILURE() << "passed without the others";
      } catch (const TimeoutError& e) {
        EXPECT_EQ(e.ranks(), (std::vector<int>{1, 2}));
      }
      judged.set_value();
    } else if (engine.rank() == 1) {
      judged.get_future().wait();
      EXPECT_THROW(engine.monitored_barrier(std::chrono::seconds(60), false), TimeoutError);
    }
    engine.wait(engine.start({}), kForever);  // the group is still usable
  });
}

TEST(Engine, LeavingRanksAreNamed) {
  run_ranks(2, [](Engine& engine, SharedArena&) {
    if (engine.rank() == 1) return;
    try {
      engine.wait(engine.start({}), kForever);
      FAIL();
    } catch (const PeerLostError& e) {
      EXPECT_NE(std::string(e.what()).find("rank 1"), std::string::npos);
    }
  });
}

TEST(Engine, CanBeCancelledAndAborted) {
  run_ranks(2, [](Engine& engine, SharedArena&) {
    const CancelToken token;
    token.cancel();
    if (engine.rank() == 0) {
      EXPECT_THROW(engine.wait(engine.start({}), {Deadline::never(), &token}), CancelledError);
    } else {
      std::byte byte{};
      EXPECT_THROW(
          engine.wait(*engine.start_receive({.peer = 0, .tag = 1, .data = &byte, .bytes = 1}), kForever),
          CommunicationError);
    }
  });
}

TEST(Engine, RefusesWhatCannotBe) {
  run_ranks(1, [](Engine& engine, SharedArena&) {
    EXPECT_THROW(engine.start({.kind = OperationKind::broadcast, .root = 1}), UsageError);
    EXPECT_THROW(
        engine.start(
            {.kind = OperationKind::all_reduce, .type = DType::float32, .reduction = Reduction::bitwise_or}),
        UsageError);
    EXPECT_THROW(engine.start({.kind = OperationKind::broadcast, .weighted = true}), UsageError);
  });
}

TEST(Messages, ArriveByTagInAnyOrderAndSize) {
  run_ranks(3, [](Engine& engine, SharedArena&) {
    const int next = (engine.rank() + 1) % 3;
    const int previous = (engine.rank() + 2) % 3;
    std::vector<std::vector<std::byte>> sent;
    std::vector<std::vector<std::byte>> received;
    std::vector<std::shared_ptr<Message>> pending;
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{1000}, std::size_t{500000}}) {
      const int tag = static_cast<int>(sent.size());
      sent.emplace_back(bytes, static_cast<std::byte>(engine.rank() * 10 + tag));
      pending.push_back(
          engine.start_send({.peer = next, .tag = tag, .data = sent.back().data(), .bytes = bytes}));
    }
    // Received in the reverse order of sending: early messages are kept.
    for (int tag = 3; tag >= 0; --tag) {
      std::vector<std::byte> data(sent[static_cast<std::size_t>(tag)].size());
      const auto message =
          engine.start_receive({.peer = previous, .tag = tag, .data = data.data(), .bytes = data.size()});
      engine.wait(*message, kForever);
      for (const std::byte b : data) ASSERT_EQ(b, static_cast<std::byte>(previous * 10 + tag));
    }
    for (const auto& message : pending) engine.wait(*message, kForever);
  });
}

TEST(Messages, AnySourceAndMismatch) {
  run_ranks(2, [](Engine& engine, SharedArena&) {
    std::int64_t number = 42;
    auto* data = reinterpret_cast<std::byte*>(&number);
    if (engine.rank() == 1) {
      engine.wait(*engine.start_send({.peer = 0, .tag = 9, .data = data, .bytes = 8}), kForever);
      try {
        engine.wait(engine.start({}), kForever);
        FAIL() << "rank 0 fails, so this rank must too";
      } catch (const CommunicationError& e) {
        EXPECT_NE(std::string(e.what()).find("expects 4"), std::string::npos) << e.what();
      }
      return;
    }
    EXPECT_THROW(
        engine.wait(*engine.start_receive({.peer = kAnyRank, .tag = 9, .data = data, .bytes = 4}), kForever),
        MismatchError);
  });
}

TEST(EngineProcesses, ReduceRegisteredBuffersInPlace) {
  EXPECT_EQ(rondo::tests::run_rank_processes(3,
                                             [](Store& store, int rank) {
                                               const auto arena = std::make_shared<SharedArena>(GiB(1));
                                               Engine engine(store, rank_options(rank, 3), arena);
                                               Buffer buffer(*arena, true, 100000);
                                               for (int round = 0; round < 20; ++round) {
                                                 for (std::size_t i = 0; i < 100000; ++i)
                                                   buffer[i] = static_cast<float>(rank);
                                                 CollectiveRequest request{.kind = OperationKind::all_reduce,
                                                                           .type = DType::float32,
                                                                           .elements = 100000};
                                                 request.input.base = request.output.base = buffer.bytes();
                                                 finish(engine, request);
                                                 for (std::size_t i = 0; i < 100000; ++i) {
                                                   if (buffer[i] != 3.0F) throw Error("wrong sum");
                                                 }
                                               }
                                             }),
            0);
}

// The survivor notices by itself: no deadline passes while the process is alive. EngineFaults prints the
// times.
TEST(EngineProcesses, NoticeAKilledPeer) {
  EXPECT_EQ(rondo::tests::run_rank_processes(2,
                                             [](Store& store, int rank) {
                                               GroupOptions options = rank_options(rank, 2);
                                               options.timeout = std::chrono::hours(1);
                                               Engine engine(store, options, nullptr);
                                               finish(engine, {});
                                               if (rank == 1) raise(SIGKILL);
                                               try {
                                                 engine.wait(engine.start({}), kForever);
                                               } catch (const PeerLostError& e) {
                                                 if (e.ranks() != std::vector<int>{1}) throw;
                                                 return;
                                               }
                                               throw Error("not noticed");
                                             }),
            1);  // the killed rank
}

TEST(EngineProcesses, NameStoppedPeerUnlessItResumesInTime) {
  for (const bool wakes : {true, false}) {
    const auto store = SharedStore::create();
    const auto body = [&](Store&, int rank) {
      GroupOptions options = rank_options(rank, 2);
      options.stopped_grace = wakes ? std::chrono::milliseconds(60000) : std::chrono::milliseconds(300);
      Engine engine(*store, options, nullptr);
      finish(engine, {});
      if (rank == 1) {
        store->set("stopping", "");
        raise(SIGSTOP);
        if (wakes) finish(engine, {});
        return;
      }
      try {
        finish(engine, {});
      } catch (const TimeoutError& e) {
        if (wakes || e.ranks() != std::vector<int>{1} ||
            std::string(e.what()).find("SIGSTOP") == std::string::npos)
          throw;
        store->set("named", "");
        return;
      }
      if (!wakes) throw Error("not noticed");
    };
    const auto watch = [&](int rank, pid_t pid) {
      if (rank != 1) return;
      int status = 0;
      waitpid(pid, &status, WUNTRACED);
      if (!wakes) store->get("named", {Deadline::after(std::chrono::minutes(4)), nullptr});
      kill(pid, SIGCONT);
    };
    EXPECT_EQ(rondo::tests::run_rank_processes(2, body, watch), 0);
  }
}

}  // namespace
}  // namespace rondo::shared_memory::engine_test
