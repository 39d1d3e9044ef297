// The native engine owns the memory that it writes: Works, tensors and groups may be dropped while operations
// are in flight. The address sanitizer reports a write into freed memory; without it such a write changes
// other tensors.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <optional>
#include <thread>

#include "rondo/backend/collectives.h"
#include "rondo/backend/engine/store_adapter.h"
#include "rondo/backend/memory/registered_memory.h"
#include "rondo/backend/native/native_backend.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/channel/waiting.h"
#include "rondo/collective/shared_memory/helper_thread.h"
#include "tests/backend/ranks.h"
#include "tests/rank_processes.h"

namespace rondo::ownership_test {
namespace {

using testing::run_ranks;
using Work = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;
using Lists = std::vector<Tensors>;

Tensors pieces(int ranks, std::int64_t elements) {
  Tensors all;
  for (int r = 0; r < ranks; ++r) all.push_back(at::ones({elements}));
  return all;
}

// The only operation that has ended when its call returns.
constexpr const char* kBlocking = "sparse_all_reduce";

// Starts one operation on tensors without other references.
using Start = std::function<Work(c10d::Backend&, std::int64_t)>;
const std::map<std::string, Start>& starts() {
  static const std::map<std::string, Start> all{
      {"all_reduce",
       [](c10d::Backend& b, std::int64_t n) {
         Tensors t{at::ones({n})};
         return b.allreduce(t);
       }},
      {"strided_all_reduce",
       [](c10d::Backend& b, std::int64_t n) {
         Tensors t{at::ones({n, 2}).t()};
         return b.allreduce(t);
       }},
      {"several_all_reduce",
       [](c10d::Backend& b, std::int64_t n) {
         Tensors t = pieces(2, n);
         return b.allreduce(t);
       }},
      {"coalesced",
       [](c10d::Backend& b, std::int64_t n) {
         Tensors t = pieces(2, n);
         return b.allreduce_coalesced(t);
       }},
      {"broadcast",
       [](c10d::Backend& b, std::int64_t n) {
         Tensors t{at::ones({n})};
         return b.broadcast(t);
       }},
      {"reduce",
       [](c10d::Backend& b, std::int64_t n) {
         Tensors t{at::ones({n})};
         return b.reduce(t);
       }},
      {"all_gather",
       [](c10d::Backend& b, std::int64_t n) {
         Lists out{pieces(b.getSize(), n)};
         Tensors in{at::ones({n})};
         return b.allgather(out, in);
       }},
      {"all_gather_coalesced",
       [](c10d::Backend& b, std::int64_t n) {
         Lists out;
         for (int r = 0; r < b.getSize(); ++r) out.push_back(pieces(2, n));
         Tensors in = pieces(2, n);
         return b.allgather_coalesced(out, in);
       }},
      {"all_gather_into_tensor",
       [](c10d::Backend& b, std::int64_t n) {
         at::Tensor out = at::ones({n * b.getSize()});
         at::Tensor in = at::ones({n});
         return b._allgather_base(out, in);
       }},
      {"gather",
       [](c10d::Backend& b, std::int64_t n) {
         Lists out;
         if (b.getRank() == 0) out.push_back(pieces(b.getSize(), n));
         Tensors in{at::ones({n})};
         return b.gather(out, in);
       }},
      {"scatter",
       [](c10d::Backend& b, std::int64_t n) {
         Lists in;
         if (b.getRank() == 0) in.push_back(pieces(b.getSize(), n));
         Tensors out{at::ones({n})};
         return b.scatter(out, in);
       }},
      {"reduce_scatter",
       [](c10d::Backend& b, std::int64_t n) {
         Lists in{pieces(b.getSize(), n)};
         Tensors out{at::ones({n})};
         return b.reduce_scatter(out, in);
       }},
      {"reduce_scatter_tensor",
       [](c10d::Backend& b, std::int64_t n) {
         at::Tensor in = at::ones({n * b.getSize()});
         at::Tensor out = at::ones({n});
         return b._reduce_scatter_base(out, in);
       }},
      {"all_to_all",
       [](c10d::Backend& b, std::int64_t n) {
         Tensors out = pieces(b.getSize(), n);
         Tensors in = pieces(b.getSize(), n);
         return b.alltoall(out, in);
       }},
      {"all_to_all_single",
       [](c10d::Backend& b, std::int64_t n) {
         at::Tensor out = at::ones({n * b.getSize()});
         at::Tensor in = at::ones({n * b.getSize()});
         std::vector<std::int64_t> equal;
         return b.alltoall_base(out, in, equal, equal);
       }},
      {"uneven_all_to_all",
       [](c10d::Backend& b, std::int64_t n) {
         // Rank 0 gets n elements from each of two ranks, rank 1 twice as many.
         const std::int64_t mine = n * (b.getRank() + 1);
         at::Tensor out = at::ones({2 * mine});
         at::Tensor in = at::ones({3 * n});
         std::vector<std::int64_t> out_splits{mine, mine};
         std::vector<std::int64_t> in_splits{n, 2 * n};
         return b.alltoall_base(out, in, out_splits, in_splits);
       }},
      {"all_gather_into_tensor_coalesced",
       [](c10d::Backend& b, std::int64_t n) {
         Tensors out = pieces(2, n * b.getSize());
         Tensors in = pieces(2, n);
         return b.allgather_into_tensor_coalesced(out, in);
       }},
      {"reduce_scatter_tensor_coalesced",
       [](c10d::Backend& b, std::int64_t n) {
         Tensors out = pieces(2, n);
         Tensors in = pieces(2, n * b.getSize());
         return b.reduce_scatter_tensor_coalesced(out, in);
       }},
      {kBlocking,
       [](c10d::Backend& b, std::int64_t n) {
         Tensors t{at::ones({n}).to_sparse()};
         return b.allreduce(t);
       }},
      {"messages",
       [](c10d::Backend& b, std::int64_t n) {
         Tensors sent{at::ones({n})};
         Tensors received{at::ones({n})};
         b.send(sent, (b.getRank() + 1) % b.getSize(), 1);
         return b.recv(received, (b.getRank() + b.getSize() - 1) % b.getSize(), 1);
       }},
      {"receive_from_any",
       [](c10d::Backend& b, std::int64_t n) {
         Tensors sent{at::ones({n})};
         Tensors received{at::ones({n})};
         Work work = b.recvAnysource(received, 2);
         b.send(sent, (b.getRank() + 1) % b.getSize(), 2);
         return work;
       }},
      {"barrier", [](c10d::Backend& b, std::int64_t) { return b.barrier(); }},
  };
  return all;
}

// Timeout of an operation that cannot complete.
constexpr std::chrono::milliseconds kShort{20};

class Ownership : public ::testing::TestWithParam<std::tuple<std::string, std::int64_t>> {
 protected:
  Work start(c10d::Backend& backend) const {
    return starts().at(std::get<0>(GetParam()))(backend, std::get<1>(GetParam()));
  }
  std::int64_t elements() const { return std::get<1>(GetParam()); }
  bool blocks() const { return std::get<0>(GetParam()) == kBlocking; }

  // Rank 0 starts an operation that rank 1 does not start, drops it and gives up the group. Rank 1 joins it
  // after other tensors have reused the memory.
  void leave_alone(const std::function<void(c10d::Backend&)>& give_up) const {
    run_ranks(2, "native", [&](Context& context) {
      Tensors others;
      {
        const Group group = context.new_group({0, 1});
        c10d::Backend& backend = *group.backend();
        barrier(group);
        if (context.rank() == 0) {
          give_up(backend);
          EXPECT_THROW(backend.barrier()->wait(), Error) << "the group is broken";
          for (int k = 0; k < 6; ++k) others.push_back(at::full({elements()}, 7.0F));
        }
        barrier(context.world());
        if (context.rank() == 1) {
          try {
            start(backend)->wait();
          } catch (const CommunicationError&) {
            // Only an operation that needs nothing more of rank 0 may succeed.
          }
        }
        barrier(context.world());
      }
      for (const at::Tensor& other : others) EXPECT_TRUE(other.eq(7).all().item<bool>());
    });
  }

  // Starts an operation on rank 0 alone, so that the timeout or the abort occurs while it is in flight.
  void start_alone(c10d::Backend& backend, std::optional<std::chrono::milliseconds> timeout) const {
    if (timeout) backend.setTimeout(*timeout);
    try {
      start(backend);
    } catch (const CommunicationError&) {
      EXPECT_TRUE(timeout.has_value()) << "the time was over before the last part was started";
    }
  }
};

TEST_P(Ownership, WorksAndTensorsMayBeDropped) {
  run_ranks(2, "native", [&](Context& context) {
    Tensors others;
    for (int i = 0; i < 4; ++i) {
      start(*context.world().backend());
      for (int k = 0; k < 3; ++k) others.push_back(at::full({elements()}, 7.0F));
    }
    barrier(context.world());
    for (const at::Tensor& other : others) EXPECT_TRUE(other.eq(7).all().item<bool>());
  });
}

TEST_P(Ownership, GroupsMayBeDropped) {
  run_ranks(2, "native", [&](Context& context) {
    {
      const Group group = context.new_group({0, 1});
      start(*group.backend());
    }
    const at::Tensor other = at::full({elements()}, 7.0F);
    Work last;
    {
      const Group group = context.new_group({1, 0});
      last = start(*group.backend());
    }
    EXPECT_TRUE(last->wait());
    barrier(context.world());
    EXPECT_TRUE(other.eq(7).all().item<bool>());
  });
}

TEST_P(Ownership, MemoryIsLeftAloneAfterATimeout) {
  leave_alone([&](c10d::Backend& backend) { start_alone(backend, kShort); });
}

TEST_P(Ownership, MemoryIsLeftAloneAfterAnAbort) {
  leave_alone([&](c10d::Backend& backend) {
    start_alone(backend, blocks() ? std::optional(kShort) : std::nullopt);
    backend.abort();
  });
}

TEST_P(Ownership, MemoryIsLeftAloneAfterAWorksAbort) {
  leave_alone([&](c10d::Backend& backend) {
    if (blocks()) {
      start_alone(backend, kShort);  // there is no Work yet
    } else {
      start(backend)->abort();
    }
  });
}

TEST_P(Ownership, FuturesCompleteWithoutAWait) {
  std::promise<void> rank_0_has_its_future;
  run_ranks(2, "native", [&](Context& context) {
    // getFuture() does not wait either: it returns on rank 0 before rank 1 starts.
    if (context.rank() == 1 && !blocks()) {
      auto asked = rank_0_has_its_future.get_future();
      ASSERT_EQ(asked.wait_for(std::chrono::seconds(60)), std::future_status::ready);
    }
    const auto future = start(*context.world().backend())->getFuture();
    if (context.rank() == 0) rank_0_has_its_future.set_value();
    std::promise<void> called;
    future->addCallback([&](c10::ivalue::Future& done) {
      EXPECT_FALSE(done.hasError());
      called.set_value();
    });
    EXPECT_EQ(called.get_future().wait_for(std::chrono::minutes(5)), std::future_status::ready);
  });
}

// exit() with all operations in flight, by the engine and by plans; the memory has no owner afterwards.
TEST(OwnershipProcesses, LeaveWhileOperationsAreUnderWay) {
  for (const char* algorithm : {"engine", "ring"}) {
    setenv("RONDO_ALGORITHM", algorithm, 1);
    const int failed = tests::run_rank_processes(2, [](Store& meeting, int rank) {
      // Never destroyed, as in a program at exit(); not a leak to report.
      std::atexit([] {
        shared_memory::stop_helper_threads();
        _exit(::testing::Test::HasFailure() ? 1 : 0);
      });
      at::set_num_threads(1);
      InitOptions options;
      options.backend = "native";
      options.rank = rank;
      options.world_size = 2;
      options.store =
          c10::make_intrusive<StoreForC10d>(std::shared_ptr<Store>(std::shared_ptr<Store>(), &meeting));
      auto* const context = new Context(init(options));
      for (const auto& [name, start] : starts()) start(*context->world().backend(), 300'000);
      // A rank could not start the rest after its peer has ended.
      const Wait wait{Deadline::after(std::chrono::seconds(60)), nullptr};
      meeting.set(str("started ", rank), "");
      meeting.get(str("started ", 1 - rank), wait);
      std::exit(0);
    });
    unsetenv("RONDO_ALGORITHM");
    EXPECT_EQ(failed, 0) << algorithm;
  }
}

// As at the end of main() in a process that a rank forks for another purpose.
TEST(ForkOfThreads, ChildDoesNotCloseItsParentsGroup) {
  for (const char* algorithm : {"engine", "ring"}) {
    setenv("RONDO_ALGORITHM", algorithm, 1);
    const int failed = tests::run_rank_processes(2, [](Store& meeting, int rank) {
      at::set_num_threads(1);
      InitOptions options;
      options.backend = "native";
      options.rank = rank;
      options.world_size = 2;
      options.timeout = std::chrono::minutes(2);
      options.store =
          c10::make_intrusive<StoreForC10d>(std::shared_ptr<Store>(std::shared_ptr<Store>(), &meeting));
      Context context = init(options);
      at::Tensor tensor = at::ones({100'000});
      all_reduce(tensor, context.world());
      if (rank == 0) {
        const pid_t child = fork();
        if (child == 0) {
          context = Context();
          _exit(0);
        }
        int status = 0;
        waitpid(child, &status, 0);
        EXPECT_EQ(status, 0);
        // Makes rank 1 wait long enough to check whether rank 0 has left.
        const Deadline looked = Deadline::after(10 * kPeerCheckInterval);
        while (!looked.passed()) std::this_thread::yield();
      }
      all_reduce(tensor, context.world());
      EXPECT_TRUE(tensor.eq(4).all().item<bool>());
    });
    unsetenv("RONDO_ALGORITHM");
    EXPECT_EQ(failed, 0) << algorithm;
  }
}

// Blocks a rank where it accesses a page: the page fault enters a signal handler that waits.
struct Standstill {
  static constexpr std::size_t kPage = 4096;
  void* page = nullptr;
  std::atomic<bool> begun = false;
  std::atomic<bool> over = false;

  void expect_at(void* address) {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    page = reinterpret_cast<void*>(at / kPage * kPage);
    begun = over = false;
    struct sigaction action = {};
    action.sa_handler = &Standstill::stand;
    sigaction(SIGSEGV, &action, &before);
    ASSERT_EQ(mprotect(page, kPage, PROT_NONE), 0);
  }
  void forget() const { sigaction(SIGSEGV, &before, nullptr); }

  static void stand(int signal);
  struct sigaction before = {};
} standstill;

void Standstill::stand(int signal) {
  if (standstill.begun.exchange(true)) {
    // A second fault is a real one.
    sigaction(signal, &standstill.before, nullptr);
    return;
  }
  while (!standstill.over) sched_yield();
  mprotect(standstill.page, kPage, PROT_READ | PROT_WRITE);
}

// Rank 1 blocks inside the in-place reduction, which writes to rank 0's memory. Rank 0 gives up, drops the
// tensor and allocates others, before rank 1 continues.
TEST(InPlaceMemory, MemoryIsKeptWhileAPeerUsesIt) {
  const std::map<std::string, std::function<void(const Group&)>> reductions{
      {"at once",
       [](const Group& group) {
         at::Tensor tensor = at::ones({1000, 1000});
         all_reduce(tensor, group);
       }},
      {"a copy",
       [](const Group& group) {
         Tensors tensors{at::ones({1000, 1016}).narrow(1, 0, 1000)};
         group.backend()->allreduce(tensors)->wait();
       }},
      {"several", [](const Group& group) {
         Tensors tensors{at::ones({1000, 1000}), at::ones({1000, 1000})};
         group.backend()->allreduce(tensors)->wait();
       }}};
  for (const auto& [name, reduction] : reductions) {
    std::promise<void> rank_1_is_through;
    run_ranks(2, "native", [&, &name = name, &reduction = reduction](Context& context) {
      if (!registers_allocations()) GTEST_SKIP() << "no memory is registered here";
      const Group group = context.new_group({0, 1});
      barrier(group);
      if (context.rank() == 1) {
        Tensors tensors{at::ones({1000, 1000})};
        const auto last = static_cast<std::byte*>(tensors[0].data_ptr()) + tensors[0].nbytes() - 100'000;
        standstill.expect_at(extended(group.backend())->published(1, process_arena()->offset(last)));
        barrier(context.world());
        try {
          group.backend()->allreduce(tensors)->wait();
        } catch (const CommunicationError&) {
          // Rank 0 has given up.
        }
        EXPECT_TRUE(standstill.begun) << name << ": not in place";
        standstill.forget();
        rank_1_is_through.set_value();
      } else {
        barrier(context.world());
        group.backend()->setTimeout(std::chrono::milliseconds(500));
        EXPECT_THROW(reduction(group), TimeoutError) << name;
        Tensors others;
        for (int k = 0; k < 6; ++k) others.push_back(at::full({1000, 1000}, 7.0F));
        standstill.over = true;
        EXPECT_EQ(rank_1_is_through.get_future().wait_for(std::chrono::minutes(2)),
                  std::future_status::ready);
        for (const at::Tensor& other : others) EXPECT_TRUE(other.eq(7).all().item<bool>()) << name;
      }
    });
  }
}

std::vector<std::string> names_of_starts() {
  std::vector<std::string> names;
  for (const auto& [name, start] : starts()) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(OperationsAndSizes, Ownership,
                         ::testing::Combine(::testing::ValuesIn(names_of_starts()),
                                            ::testing::Values<std::int64_t>(10, 1000, 1'000'000)),
                         [](const auto& info) {
                           return str(std::get<0>(info.param), "_", std::get<1>(info.param));
                         });

TEST(NativeFutures, OfTwoGroupsResolveInAnyOrder) {
  run_ranks(2, "native", [](Context& context) {
    std::vector<Group> groups{context.new_group({0, 1}), context.new_group({0, 1})};
    if (context.rank() == 1) std::swap(groups[0], groups[1]);
    std::vector<c10::intrusive_ptr<c10::ivalue::Future>> futures;
    for (const Group& group : groups) {
      Tensors tensors{at::ones({100'000})};
      auto future = group.backend()->allreduce(tensors)->getFuture();
      futures.push_back(
          future->then([](c10::ivalue::Future& done) { return done.value(); }, future->elementType()));
    }
    for (const auto& future : futures) {
      future->wait();
      EXPECT_EQ(future->value().toTensorVector().front()[0].item<float>(), 2);
    }
  });
}

TEST(NativeFutures, HaveTheErrorOfTheirOperation) {
  run_ranks(2, "native", [](Context& context) {
    Tensors tensors{at::ones({context.rank() + 10})};
    auto future = context.world().backend()->allreduce(tensors)->getFuture();
    future->wait();
    ASSERT_TRUE(future->hasError());
    EXPECT_NE(future->tryRetrieveErrorMessage().find("all_reduce(10 x float32"), std::string::npos);
  });
}

TEST(NativeTimeout, AppliesToTheGroupAndKeepsOthersAlive) {
  run_ranks(2, "native", [](Context& context) {
    const Group group = context.new_group({0, 1});
    barrier(group);
    group.backend()->setTimeout(std::chrono::milliseconds(100));
    if (context.rank() == 0) {
      Tensors tensors{at::ones({3})};
      try {
        group.backend()->allreduce(tensors)->wait();
        ADD_FAILURE() << "rank 1 is not there";
      } catch (const TimeoutError& e) {
        EXPECT_EQ(e.ranks(), std::vector<int>{1});
      }
    }
    barrier(context.world());
  });
}

}  // namespace
}  // namespace rondo::ownership_test
