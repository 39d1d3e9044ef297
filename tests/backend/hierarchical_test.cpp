#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <future>
#include <map>

#include "rondo/backend/collectives.h"
#include "rondo/backend/hierarchical/transports.h"
#include "rondo/backend/registry.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/collective/codec/codec.h"
#include "tests/backend/host_layouts.h"
#include "tests/backend/ranks.h"
#include "tests/rank_threads.h"

namespace rondo::hierarchical_test {
namespace {

using host_layouts::contribution;
using host_layouts::kLayouts;
using host_layouts::run_layout;
using host_layouts::sum_of_contributions;
using testing::run_ranks;

// Small, at the limit for a single rank, over several chunks, and lengths with uneven parts.
const std::vector<std::int64_t> kLengths = {1, 1000, 16385, 200003};

TEST(HostMap, NumbersHostsByTheirLowestRank) {
  const hierarchical::HostMap map({"b", "a", "b", "a", "a"}, 3);
  EXPECT_EQ(map.host_count(), 2);
  EXPECT_EQ(map.members(0), (std::vector<int>{0, 2}));
  EXPECT_EQ(map.members(1), (std::vector<int>{1, 3, 4}));
  EXPECT_EQ(map.host(), 1);
  EXPECT_EQ(map.local_rank(), 1);
  EXPECT_EQ(map.smallest_host(), 2);
  EXPECT_FALSE(map.even());
  EXPECT_EQ(map.counterpart(0, 2), 0);
}

TEST(HostMap, RanksExchangeWithTheirCounterparts) {
  const std::vector<std::string> hosts = {"a", "a", "a", "a", "b", "b", "c", "c", "c"};
  const int ranks = static_cast<int>(hosts.size());
  const std::map<int, std::vector<int>> expected = {{1, {5, 7}}, {3, {5, 6}}, {4, {0, 2, 6, 8}}};
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<int> peers;
    for (int other = 0; other < ranks; ++other) {
      const bool deals = hierarchical::HostMap(hosts, rank).communicates_with(other);
      EXPECT_EQ(deals, hierarchical::HostMap(hosts, other).communicates_with(rank))
          << rank << " and " << other;
      if (deals) peers.push_back(other);
    }
    if (const auto known = expected.find(rank); known != expected.end()) {
      EXPECT_EQ(peers, known->second) << rank;
    }
  }
}

TEST(Hierarchical, AllReduce) {
  for (const auto& hosts : kLayouts) {
    run_layout(hosts, [&](Context& context) {
      const int n = context.world_size();
      EXPECT_EQ(context.world().backend()->getBackendName(), "hierarchical");
      for (const std::int64_t length : kLengths) {
        at::Tensor tensor = contribution(context.rank(), length);
        all_reduce(tensor, context.world());
        EXPECT_TRUE(at::equal(tensor, sum_of_contributions(n, length))) << length;
        tensor = contribution(context.rank(), length);
        all_reduce(tensor, context.world(), ReduceOp::AVG);
        EXPECT_TRUE(at::allclose(tensor, sum_of_contributions(n, length) / n)) << length;
      }
      for (const auto type : {at::kDouble, at::kHalf, at::kBFloat16, at::kInt, at::kLong, at::kByte}) {
        at::Tensor tensor = contribution(context.rank(), 70001, type);
        all_reduce(tensor, context.world());
        EXPECT_TRUE(at::equal(tensor, sum_of_contributions(n, 70001, type))) << type;
      }
      at::Tensor tensor = contribution(context.rank(), 40000);
      all_reduce(tensor, context.world(), ReduceOp::MAX);
      EXPECT_TRUE(at::equal(tensor, contribution(n - 1, 40000)));
      tensor = at::full({40000}, 2, at::kLong);
      all_reduce(tensor, context.world(), ReduceOp::PRODUCT);
      EXPECT_EQ(tensor.sum().item<long>(), 40000L << n);
      at::Tensor strided = contribution(context.rank(), 600).view({20, 30}).t();
      all_reduce(strided, context.world());
      EXPECT_TRUE(at::equal(strided, sum_of_contributions(n, 600).view({20, 30}).t()));
      barrier(context.world());
    });
  }
}

// As within one host, where ownership_test.cpp tests the native engine.
TEST(Hierarchical, SeveralTensorsOfOneCallAreOneContribution) {
  for (const std::string options : {"", ", codec=bfloat16"}) {
    run_layout(
        {0, 1, 1},
        [](Context& context) {
          c10d::Backend& backend = *context.world().backend();
          const auto several = [&](std::int64_t length, int times) {
            return std::vector<at::Tensor>{
                contribution(context.rank(), length),
                contribution(context.rank(), 2 * length).slice(0, 0, 2 * length, 2) * times};
          };
          for (const std::int64_t length : {10, 70000}) {
            at::Tensor expected = at::zeros({length});
            for (int rank = 0; rank < 3; ++rank)
              expected +=
                  contribution(rank, length) + 10 * contribution(rank, 2 * length).slice(0, 0, 2 * length, 2);
            std::vector<at::Tensor> tensors = several(length, 10);
            const auto work = backend.allreduce(tensors);
            work->wait();
            ASSERT_EQ(work->result().size(), 2U);
            for (const at::Tensor& tensor : tensors)
              EXPECT_TRUE(at::allclose(tensor, expected, 0.02)) << length;
            EXPECT_TRUE(at::equal(tensors[0], tensors[1]));
          }
          // A coalesced call reduces each of its tensors by itself.
          std::vector<at::Tensor> list{contribution(context.rank(), 5),
                                       contribution(context.rank(), 9, at::kFloat)};
          backend.allreduce_coalesced(list)->wait();
          EXPECT_TRUE(at::equal(list[0], sum_of_contributions(3, 5)));
          EXPECT_TRUE(at::equal(list[1], sum_of_contributions(3, 9)));
          // Rejects the same arguments as native.
          std::vector<at::Tensor> lengths{at::ones({2}), at::ones({3})};
          std::vector<at::Tensor> types{at::ones({2}), at::ones({2}, at::kInt)};
          std::vector<at::Tensor> none;
          c10d::AllreduceOptions mean;
          mean.reduceOp = ReduceOp::AVG;
          EXPECT_THROW(backend.allreduce(lengths), UsageError);
          EXPECT_THROW(backend.allreduce(types), UsageError);
          EXPECT_THROW(backend.allreduce(none), UsageError);
          std::vector<at::Tensor> alike = several(4, 1);
          EXPECT_THROW(backend.allreduce(alike, mean), UsageError);
        },
        str("hierarchical(native, gloo, chunk=64KiB", options, ")"));
  }
}

// A started operation ends and owns its memory, even if its Work and its tensors are dropped.
TEST(Hierarchical, WorksAndTensorsMayBeDropped) {
  using Start = std::function<void(c10d::Backend&, std::int64_t)>;
  const auto pieces = [](std::int64_t elements) { return std::vector<at::Tensor>(3, at::ones({elements})); };
  const auto empty = [](std::int64_t elements) {
    return std::vector<at::Tensor>{at::ones({elements}), at::ones({elements}), at::ones({elements})};
  };
  const std::vector<std::pair<std::string, Start>> starts = {
      {"all_reduce",
       [](c10d::Backend& backend, std::int64_t n) {
         std::vector<at::Tensor> tensors{at::ones({n, 2}).t()};
         backend.allreduce(tensors);
       }},
      {"several",
       [&](c10d::Backend& backend, std::int64_t n) {
         std::vector<at::Tensor> tensors = empty(n);
         backend.allreduce(tensors);
       }},
      {"coalesced",
       [&](c10d::Backend& backend, std::int64_t n) {
         std::vector<at::Tensor> tensors = empty(n);
         backend.allreduce_coalesced(tensors);
       }},
      {"broadcast",
       [](c10d::Backend& backend, std::int64_t n) {
         std::vector<at::Tensor> tensors{at::ones({n})};
         backend.broadcast(tensors);
       }},
      {"reduce",
       [](c10d::Backend& backend, std::int64_t n) {
         std::vector<at::Tensor> tensors{at::ones({n})};
         backend.reduce(tensors);
       }},
      {"all_gather",
       [&](c10d::Backend& backend, std::int64_t n) {
         std::vector<std::vector<at::Tensor>> outputs{empty(n)};
         std::vector<at::Tensor> inputs{at::ones({n})};
         backend.allgather(outputs, inputs);
       }},
      {"reduce_scatter",
       [&](c10d::Backend& backend, std::int64_t n) {
         std::vector<std::vector<at::Tensor>> inputs{pieces(n)};
         std::vector<at::Tensor> outputs{at::ones({n})};
         backend.reduce_scatter(outputs, inputs);
       }},
      {"gather",
       [&](c10d::Backend& backend, std::int64_t n) {
         std::vector<std::vector<at::Tensor>> outputs;
         if (backend.getRank() == 0) outputs.push_back(empty(n));
         std::vector<at::Tensor> inputs{at::ones({n})};
         backend.gather(outputs, inputs);
       }},
      {"scatter",
       [&](c10d::Backend& backend, std::int64_t n) {
         std::vector<std::vector<at::Tensor>> inputs;
         if (backend.getRank() == 0) inputs.push_back(pieces(n));
         std::vector<at::Tensor> outputs{at::ones({n})};
         backend.scatter(outputs, inputs);
       }},
      {"all_to_all", [&](c10d::Backend& backend, std::int64_t n) {
         std::vector<at::Tensor> outputs = empty(n);
         std::vector<at::Tensor> inputs = pieces(n);
         backend.alltoall(outputs, inputs);
       }}};
  run_layout({0, 1, 1}, [&](Context& context) {
    for (const auto& [name, start] : starts) {
      for (const std::int64_t length : {10, 70001}) {
        std::vector<at::Tensor> others;
        for (int i = 0; i < 3; ++i) {
          start(*context.world().backend(), length);
          // These tensors reuse the memory of the dropped ones, if it was freed.
          for (int k = 0; k < 4; ++k) others.push_back(at::full({length}, 7.0F));
        }
        barrier(context.world());
        for (const at::Tensor& other : others) EXPECT_TRUE(other.eq(7).all().item<bool>()) << name;
      }
    }
  });
}

TEST(Hierarchical, AllReduceByOneRankOfAHost) {
  run_layout(
      {0, 1, 1, 0},
      [&](Context& context) {
        for (const std::int64_t length : kLengths) {
          at::Tensor tensor = contribution(context.rank(), length);
          all_reduce(tensor, context.world());
          EXPECT_TRUE(at::equal(tensor, sum_of_contributions(4, length))) << length;
        }
      },
      "hierarchical(native, gloo, inter_host_ranks=1, window=2)");
}

TEST(Hierarchical, TheOtherOperations) {
  for (const auto& hosts : kLayouts) {
    run_layout(hosts, [&](Context& context) {
      const Group& world = context.world();
      const int n = context.world_size();
      for (const std::int64_t length : {std::int64_t{3}, std::int64_t{300007}}) {
        for (const int root : {0, n - 1}) {
          at::Tensor tensor = contribution(context.rank(), length);
          broadcast(tensor, world, root);
          EXPECT_TRUE(at::equal(tensor, contribution(root, length)));
          tensor = contribution(context.rank(), length);
          reduce(tensor, world, root);
          EXPECT_TRUE(at::equal(tensor, context.rank() == root ? sum_of_contributions(n, length)
                                                               : contribution(context.rank(), length)));
        }
        const auto all = all_gather(contribution(context.rank(), length), world);
        for (int rank = 0; rank < n; ++rank)
          EXPECT_TRUE(at::equal(all[static_cast<std::size_t>(rank)], contribution(rank, length)));
        const at::Tensor part = reduce_scatter(contribution(context.rank(), length * n), world);
        EXPECT_TRUE(
            at::equal(part, sum_of_contributions(n, length * n).narrow(0, context.rank() * length, length)));
      }
      const auto gathered = gather(contribution(context.rank(), 9), world, 1);
      for (std::size_t rank = 0; rank < gathered.size(); ++rank)
        EXPECT_TRUE(at::equal(gathered[rank], contribution(static_cast<int>(rank), 9)));
      std::vector<at::Tensor> outputs, inputs;
      for (int rank = 0; rank < n; ++rank) {
        outputs.push_back(at::zeros({4}));
        inputs.push_back(contribution(context.rank() * 10 + rank, 4));
      }
      all_to_all(outputs, inputs, world);
      for (int rank = 0; rank < n; ++rank)
        EXPECT_TRUE(
            at::equal(outputs[static_cast<std::size_t>(rank)], contribution(rank * 10 + context.rank(), 4)));
      // Pieces of any size, including zero, and with strides.
      std::vector<std::int64_t> splits(static_cast<std::size_t>(n), 0);
      std::vector<std::int64_t> own_splits(static_cast<std::size_t>(n), context.rank());
      for (int rank = 0; rank < n; ++rank) splits[static_cast<std::size_t>(rank)] = rank;
      at::Tensor uneven = at::zeros({2, n * (n - 1) / 2}, at::kLong).t();
      at::Tensor own =
          at::full({static_cast<std::int64_t>(n) * context.rank(), 2}, context.rank(), at::kLong);
      world.backend()->alltoall_base(uneven, own, splits, own_splits)->wait();
      std::int64_t begin = 0;
      for (int rank = 0; rank < n; begin += rank++)
        EXPECT_TRUE(uneven.narrow(0, begin, rank).eq(rank).all().item<bool>());
      std::vector<std::vector<at::Tensor>> lists;
      if (context.rank() == n - 1) lists.push_back(inputs);
      std::vector<at::Tensor> scattered = {at::zeros({4})};
      c10d::ScatterOptions options;
      options.rootRank = n - 1;
      world.backend()->scatter(scattered, lists, options)->wait();
      EXPECT_TRUE(at::equal(scattered[0], contribution((n - 1) * 10 + context.rank(), 4)));
      at::Tensor message = contribution(context.rank(), 8);
      if (context.rank() == 0) send(message, world, n - 1, 3);
      if (context.rank() == n - 1) {
        recv(message, world, 0, 3);
        EXPECT_TRUE(at::equal(message, contribution(0, 8)));
      }
      EXPECT_EQ(all_gather_object({{"rank", context.rank()}}, world).back().at("rank"), n - 1);
    });
  }
}

// The chain of hosts includes hosts that lack the root's local rank.
TEST(Hierarchical, BroadcastOverHostsOfManySizes) {
  run_layout({0, 0, 0, 0, 1, 1, 2, 2, 2}, [](Context& context) {
    for (int root = 0; root < context.world_size(); ++root) {
      at::Tensor tensor = contribution(context.rank(), 1000);
      broadcast(tensor, context.world(), root);
      EXPECT_TRUE(at::equal(tensor, contribution(root, 1000))) << root;
    }
  });
}

TEST(Hierarchical, MessagesMayHaveAnyStrides) {
  run_layout({0, 1}, [](Context& context) {
    c10d::Backend& backend = *context.world().backend();
    const at::Tensor message = contribution(0, 20).view({4, 5});
    if (context.rank() == 0) {
      std::vector<at::Tensor> sent{message.t()};
      for (const int tag : {0, 1}) backend.send(sent, 1, tag)->wait();
      send(message.t(), context.world(), 1, 2);
      return;
    }
    at::Tensor wide = at::zeros({3, 5, 6});
    std::vector<at::Tensor> parts;
    for (const at::Tensor& third : wide.unbind()) parts.push_back(third.narrow(1, 0, 4));
    std::vector<at::Tensor> first{parts[0]};
    std::vector<at::Tensor> second{parts[1]};
    const auto work = backend.recv(first, 0, 0);
    work->wait();
    ASSERT_EQ(work->result().size(), 1U);
    EXPECT_TRUE(at::equal(work->result().front(), message.t()));
    backend.recvAnysource(second, 1)->wait();
    recv(parts[2], context.world(), 0, 2);
    for (const at::Tensor& part : parts) EXPECT_TRUE(at::equal(part, message.t()));
    EXPECT_TRUE(wide.narrow(2, 4, 2).eq(0).all().item<bool>()) << "what is between the strides stays";
  });
}

// The caller gets an error, the connection is not lost, and later calls have errors of their own.
TEST(Hierarchical, AMistakeInAMessageBreaksNothing) {
  run_layout({0, 1}, [](Context& context) {
    c10d::Backend& backend = *context.world().backend();
    const int peer = 1 - context.rank();
    std::vector<at::Tensor> right{at::ones({4})};
    std::vector<at::Tensor> overlapping{at::ones({1}).expand({4})};
    for (std::vector<at::Tensor> wrong : std::vector<std::vector<at::Tensor>>{
             {}, {at::Tensor()}, {at::ones({4}), at::ones({4})}, {at::ones({4}).to_sparse()}}) {
      EXPECT_THROW(backend.send(wrong, peer, 0), UsageError);
      EXPECT_THROW(backend.recv(wrong, peer, 0), UsageError);
      EXPECT_THROW(backend.recvAnysource(wrong, 0), UsageError);
    }
    EXPECT_THROW(backend.recv(overlapping, peer, 0), UsageError);
    // Gloo has no messages of a rank to itself.
    for (const int nobody : {-1, 2, context.rank()}) {
      EXPECT_THROW(backend.send(right, nobody, 0), UsageError);
      EXPECT_THROW(backend.recv(right, nobody, 0), UsageError);
    }
    EXPECT_THROW(backend.send(right, peer, -1), c10::Error) << "Gloo's word on tags";
    barrier(context.world());
    at::Tensor tensor = at::ones({context.rank() == 0 ? 3 : 4});
    EXPECT_THROW(all_reduce(tensor, context.world()), MismatchError);
  });
}

// The last reference destroys the group, even in a callback on the group's own thread: on the second thread
// if the operation succeeds, on the first if it fails.
TEST(Hierarchical, ACallbackMayHoldTheLastReference) {
  struct Last {
    Context context;
    std::promise<void> gone;
    explicit Last(Context& given) : context(given) {}
    ~Last() {
      context = Context();
      gone.set_value();
    }
  };
  for (const bool fails : {false, true}) {
    std::promise<void> rank_0_has_let_go;
    std::promise<void> rank_0_is_done;
    run_layout({0, 1}, [&](Context& context) {
      std::vector<at::Tensor> tensors{at::ones({100'000})};
      if (context.rank() == 1) {
        auto awaited = (fails ? rank_0_is_done : rank_0_has_let_go).get_future();
        ASSERT_EQ(awaited.wait_for(std::chrono::minutes(5)), std::future_status::ready);
        if (!fails) context.world().backend()->allreduce(tensors)->wait();
        return;
      }
      if (fails) context.world().backend()->setTimeout(std::chrono::milliseconds(200));
      auto last = std::make_shared<Last>(context);
      auto gone = last->gone.get_future();
      const auto work = context.world().backend()->allreduce(tensors);
      work->getFuture()->addCallback(
          [last, fails](c10::ivalue::Future& done) { EXPECT_EQ(done.hasError(), fails); });
      last.reset();
      context = Context();
      rank_0_has_let_go.set_value();
      EXPECT_EQ(gone.wait_for(std::chrono::minutes(5)), std::future_status::ready);
      rank_0_is_done.set_value();
    });
  }
}

// Sums whose rounding depends on the order of additions are equal on all ranks.
TEST(Hierarchical, AllRanksGetTheSameBits) {
  for (const auto& hosts : kLayouts) {
    run_layout(hosts, [&](Context& context) {
      at::Tensor tensor = (at::arange(100000) * (0.37 + context.rank())).sin() * 1e6;
      all_reduce(tensor, context.world());
      for (const at::Tensor& other : all_gather(tensor, context.world()))
        EXPECT_TRUE(at::equal(other, tensor));
    });
  }
}

TEST(Hierarchical, ManyAtOnceCompleteInOrder) {
  run_layout({0, 1, 0, 1}, [&](Context& context) {
    std::vector<at::Tensor> tensors;
    std::vector<c10::intrusive_ptr<c10d::Work>> works;
    for (int i = 0; i < 40; ++i) {
      tensors.push_back(contribution(context.rank() + i, 1000 * i + 1));
      std::vector<at::Tensor> message = {tensors.back()};
      works.push_back(context.world().backend()->allreduce(message));
    }
    works.back()->wait();
    for (int i = 0; i < 40; ++i) {
      EXPECT_TRUE(works[static_cast<std::size_t>(i)]->isCompleted());
      works[static_cast<std::size_t>(i)]->wait();
      at::Tensor expected = contribution(i, 1000 * i + 1);
      for (int rank = 1; rank < 4; ++rank) expected += contribution(rank + i, 1000 * i + 1);
      EXPECT_TRUE(at::equal(tensors[static_cast<std::size_t>(i)], expected));
    }
    const auto future = works.front()->getFuture();
    future->wait();
    EXPECT_EQ(future->value().toTensorVector().size(), 1U);
  });
}

TEST(Hierarchical, EncodedSumsAreCloseAndTheSameEverywhere) {
  constexpr std::int64_t kLength = 200003;
  for (const std::string codec : {"bfloat16", "float16", "int8"}) {
    for (const std::vector<int>& hosts :
         std::vector<std::vector<int>>{{0, 1, 1, 0}, {0, 0, 1}, {0, 1, 2, 0, 1, 2}}) {
      run_layout(
          hosts,
          [&](Context& context) {
            const int n = context.world_size();
            const auto values = [&](int rank) {
              return (at::arange(kLength) * (0.37 + rank)).sin().to(at::kFloat);
            };
            at::Tensor expected = values(0);
            for (int rank = 1; rank < n; ++rank) expected += values(rank);
            // The error of one encoding is added to the next: the mean of many sums is closer than one sum.
            at::Tensor buffer = at::empty({kLength});
            at::Tensor total = at::zeros({kLength});
            constexpr int kRounds = 16;
            double first = 0;
            for (int round = 0; round < kRounds; ++round) {
              buffer.copy_(values(context.rank()));
              all_reduce(buffer, context.world());
              if (round == 0) first = (buffer - expected).abs().max().item<double>();
              total += buffer;
            }
            const double bound = 2.0 * n * collective::make_codec(codec)->error_bound(n);
            EXPECT_GT(first, 0);
            EXPECT_LE(first, bound) << codec;
            if (codec == "int8") {
              EXPECT_LE((total / kRounds - expected).abs().max().item<double>(), first / 4) << codec;
            }
            for (const at::Tensor& other : all_gather(buffer, context.world()))
              EXPECT_TRUE(at::equal(other, buffer));
            // Small and integer tensors stay exact.
            at::Tensor small = contribution(context.rank(), 1000);
            all_reduce(small, context.world());
            EXPECT_TRUE(at::equal(small, sum_of_contributions(n, 1000)));
          },
          str("hierarchical(native, gloo, codec=", codec, ", chunk=256KiB)"));
    }
  }
}

TEST(Hierarchical, GroupsWithinAHostAreNative) {
  run_layout(
      {0, 1, 0, 1},
      [&](Context& context) {
        EXPECT_EQ(context.backend_name(), "hierarchical(native, gloo)");
        const Group even = context.new_group({0, 2});
        const Group mixed = context.new_group({3, 0});
        if (even.member()) {
          EXPECT_EQ(even.backend()->getBackendName(), "rondo");
          at::Tensor tensor = at::full({3}, context.rank());
          all_reduce(tensor, even);
          EXPECT_EQ(tensor[0].item<int>(), 2);
        }
        if (mixed.member()) {
          at::Tensor tensor = at::full({3}, mixed.rank());
          broadcast(tensor, mixed, 0);
          EXPECT_EQ(tensor[0].item<int>(), 0);
          EXPECT_EQ(mixed.backend()->getBackendName(), "hierarchical");
        }
        context.shutdown();
      },
      "auto");
}

TEST(Hierarchical, WrongOptionsAreNamed) {
  BackendRequest alone;
  alone.world_ranks = {0};
  alone.store = c10::make_intrusive<c10d::HashStore>();
  for (const auto& [arguments, parts] : std::vector<std::pair<std::string, std::vector<std::string>>>{
           {"gloo, gloo", {"intra-host-engine", "gloo", "native"}},
           {"native, native", {"inter-host-engine", "native"}},
           {"native, gloo, mpi", {"inter-host-codec", "mpi", "bfloat16"}},
           {"native, gloo, colour=red", {"colour=red", "inter-host-window"}},
           {"native, gloo, window=1, inter_host_window=2", {"inter-host-window", "1"}},
           {"native, gloo, inter_host_ranks=-1", {"inter-host-ranks", "-1", "0 or more"}},
           {"native, gloo, window=0", {"inter-host-window", "0", "above 0"}},
           {"native, gloo, chunk=1", {"inter-host-chunk", "1", "4.0 KiB"}}}) {
    const std::string engine = str("hierarchical(", arguments, ")");
    try {
      make_backend(engine, alone);
      ADD_FAILURE() << engine;
    } catch (const UsageError& e) {
      for (const std::string& part : parts)
        EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << part << ": " << e.what();
    }
  }
}

TEST(Members, RanksThatCountTheWorldDifferentlyAreTold) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::atomic<int> told = 0;
  tests::run_rank_threads(2, [&](int rank) {
    try {
      init({.rank = rank,
            .world_size = 2 + rank,
            .store = store,
            .host = str("host ", rank),
            .timeout = std::chrono::seconds(60)});
    } catch (const UsageError& e) {
      told += testing::states(e.what(), "counts 3") ? 1 : 0;
    }
  });
  EXPECT_EQ(told, 2);
}

}  // namespace
}  // namespace rondo::hierarchical_test
