// InitOptions::reproducible: the same bits from every engine, algorithm and layout of hosts, with numbers
// that cancel.
#include "rondo/backend/reproducible.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "rondo/backend/collectives.h"
#include "rondo/backend/gloo/factory.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/collective/algorithms/registry.h"
#include "tests/backend/ranks.h"

namespace rondo {
namespace {

// A variable of the environment, for as long as this lives.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) { setenv(name, value.c_str(), 1); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() { unsetenv(name_); }

 private:
  const char* name_;
};

at::Tensor contribution(int rank, std::int64_t elements, at::ScalarType type) {
  const at::Tensor numbers = at::tensor({1e8, 1.0, -1e8, 0.3, 3e7, -3e7, 7.7}, at::kDouble);
  const at::Tensor at_random = (at::arange(elements, at::kLong) + 1) * (2 * rank + 3) * 40503;
  return numbers.index_select(0, at_random.bitwise_xor(at_random.floor_divide(512)).remainder(7)).to(type);
}

// In the order of ranks, in float32, rounded once.
at::Tensor expected_sum(int ranks, std::int64_t elements, at::ScalarType type, bool average) {
  at::Tensor sum = contribution(0, elements, type).to(at::kFloat);
  for (int rank = 1; rank < ranks; ++rank) sum += contribution(rank, elements, type).to(at::kFloat);
  if (average) sum *= static_cast<float>(1.0 / ranks);
  return sum.to(type);
}

// All operations that add.
void check_sums(const Context& context, std::int64_t elements) {
  const Group& world = context.world();
  const int ranks = world.size();
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const ReduceOp op : {ReduceOp::SUM, ReduceOp::AVG}) {
      const std::string what =
          str(context.backend_name(), ", ", ranks, " ranks, ", elements, " x ", c10::toString(type));
      const at::Tensor expected = expected_sum(ranks, elements, type, op == ReduceOp::AVG);
      at::Tensor tensor = contribution(world.rank(), elements, type);
      all_reduce(tensor, world, op);
      EXPECT_TRUE(at::equal(tensor, expected)) << "all_reduce " << what;
      tensor = contribution(world.rank(), elements, type);
      reduce(tensor, world, ranks / 2, op);
      EXPECT_TRUE(at::equal(
          tensor, world.rank() == ranks / 2 ? expected : contribution(world.rank(), elements, type)))
          << "reduce " << what;
      const at::Tensor all = expected_sum(ranks, elements * ranks, type, op == ReduceOp::AVG);
      tensor = reduce_scatter(contribution(world.rank(), elements * ranks, type), world, op);
      EXPECT_TRUE(at::equal(tensor, all.narrow(0, world.rank() * elements, elements)))
          << "reduce_scatter " << what;
    }
  }
  // What does not depend on the order goes the usual way.
  at::Tensor counts = at::full({100}, world.rank(), at::kLong);
  all_reduce(counts, world);
  EXPECT_EQ(counts.min().item<long>(), ranks * (ranks - 1) / 2);
  barrier(world);
}

void check_engine(int ranks, const std::string& backend, const std::vector<int>& hosts = {},
                  std::int64_t elements = 1003) {
  testing::run_ranks(
      ranks, backend,
      [&](Context& context) {
        EXPECT_TRUE(context.reproducible());
        check_sums(context, elements);
      },
      std::chrono::seconds(60), hosts);
}

std::vector<int> in_turns(int ranks, int hosts) {
  std::vector<int> host_of;
  for (int rank = 0; rank < ranks; ++rank) host_of.push_back(rank % hosts);
  return host_of;
}

std::vector<int> one_apart(int ranks) {
  std::vector<int> host_of(static_cast<std::size_t>(ranks), 0);
  host_of[1] = 1;
  return host_of;
}

TEST(Reproducible, NativeEngineAndItsAlgorithms) {
  const Variable wanted(kReproducibleVariable, "1");
  for (int ranks = 3; ranks <= 8; ++ranks) {
    check_engine(ranks, "native");
    for (const std::string& algorithm : collective::algorithm_names()) {
      const Variable by_hand("RONDO_ALGORITHM", algorithm);
      check_engine(ranks, "native", {}, 77);
    }
  }
}

TEST(Reproducible, SeveralHostsInAnyLayout) {
  if (!have_gloo()) GTEST_SKIP() << "this build has no Gloo";
  const Variable wanted(kReproducibleVariable, "1");
  for (int ranks = 3; ranks <= 8; ++ranks) {
    check_engine(ranks, "auto", in_turns(ranks, 2));
    if (ranks % 3 == 0) check_engine(ranks, "auto", one_apart(ranks));
  }
  // More than one chunk, and a host more than a rank has pieces to send to.
  check_engine(6, "hierarchical(native, gloo, window=2)", in_turns(6, 3), 300001);
  check_engine(3, "auto", in_turns(3, 2), 1);
}

TEST(Reproducible, AnEngineWithAnOrderOfItsOwn) {
  if (!have_gloo()) GTEST_SKIP() << "this build has no Gloo";
  const Variable wanted(kReproducibleVariable, "1");
  for (int ranks = 3; ranks <= 8; ++ranks) check_engine(ranks, "gloo");
}

TEST(Reproducible, WithoutTheOptionTheLayoutOfHostsShows) {
  if (!have_gloo()) GTEST_SKIP() << "this build has no Gloo";
  testing::run_ranks(
      4, "auto",
      [](Context& context) {
        EXPECT_FALSE(context.reproducible());
        at::Tensor tensor = contribution(context.rank(), 1003, at::kFloat);
        all_reduce(tensor, context.world());
        EXPECT_FALSE(at::equal(tensor, expected_sum(4, 1003, at::kFloat, false)));
      },
      std::chrono::seconds(60), in_turns(4, 2));
}

TEST(Reproducible, IsWhatRankZeroAsksFor) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  tests::run_rank_threads(2, [&](int rank) {
    const Context context =
        init({.backend = "native", .rank = rank, .world_size = 2, .store = store, .reproducible = rank == 0});
    EXPECT_TRUE(context.reproducible());
  });
}

TEST(Reproducible, SaysWhatCannotBe) {
  const auto message = [](const InitOptions& options) -> std::string {
    try {
      init(options);
    } catch (const UsageError& e) {
      return e.what();
    }
    return "no error";
  };
  const Variable wanted(kReproducibleVariable, "yes");
  EXPECT_EQ(message({.rank = 0, .world_size = 1, .store = c10::make_intrusive<c10d::HashStore>()}),
            "RONDO_REPRODUCIBLE=yes: it is 1, for sums in the order of ranks, or 0");
  if (!have_gloo()) return;
  const auto store = c10::make_intrusive<c10d::HashStore>();
  tests::run_rank_threads(2, [&](int rank) {
    const std::string text = message({.backend = "hierarchical(native, gloo, codec=int8)",
                                      .rank = rank,
                                      .world_size = 2,
                                      .store = store,
                                      .host = str("host ", rank),
                                      .reproducible = true});
    EXPECT_NE(text.find("codec=int8 encodes the sums of hosts"), std::string::npos) << text;
  });
}

}  // namespace
}  // namespace rondo
