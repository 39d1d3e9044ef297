// InitOptions::deterministic: the same bits from every engine, algorithm and layout of hosts, with values
// that cancel.
#include "rondo/backend/rendezvous.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "rondo/backend/collectives.h"
#include "rondo/backend/gloo/factory.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/collective/algorithms/registry.h"
#include "tests/backend/rank_order_sums.h"
#include "tests/backend/ranks.h"
#include "tests/errors.h"

namespace rondo::deterministic_test {
namespace {

// Sets an environment variable during its lifetime.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) { setenv(name, value.c_str(), 1); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() { unsetenv(name_); }

 private:
  const char* name_;
};

void check_engine(int ranks, const std::string& backend, const std::vector<int>& hosts = {},
                  std::int64_t elements = 1003) {
  testing::run_ranks(
      ranks, backend,
      [&](Context& context) {
        EXPECT_TRUE(context.deterministic());
        testing::expect_sums_in_rank_order(context, elements);
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

TEST(Deterministic, NativeEngineAndItsAlgorithms) {
  const Variable wanted(kDeterministicVariable, "1");
  for (int ranks = 3; ranks <= 8; ++ranks) {
    check_engine(ranks, "native");
    for (const std::string& algorithm : collective::algorithm_names()) {
      const Variable by_hand("RONDO_ALGORITHM", algorithm);
      check_engine(ranks, "native", {}, 77);
    }
  }
}

TEST(Deterministic, SeveralHostsInAnyLayout) {
  if (!have_gloo()) GTEST_SKIP() << "this build has no Gloo";
  const Variable wanted(kDeterministicVariable, "1");
  for (int ranks = 3; ranks <= 8; ++ranks) {
    check_engine(ranks, "auto", in_turns(ranks, 2));
    if (ranks % 3 == 0) check_engine(ranks, "auto", one_apart(ranks));
  }
  // More than one chunk, and more hosts than a rank has pieces to send to.
  check_engine(6, "hierarchical(native, gloo, window=2)", in_turns(6, 3), 300001);
  check_engine(3, "auto", in_turns(3, 2), 1);
}

TEST(Deterministic, AnEngineWithAnOrderOfItsOwn) {
  if (!have_gloo()) GTEST_SKIP() << "this build has no Gloo";
  const Variable wanted(kDeterministicVariable, "1");
  for (int ranks = 3; ranks <= 8; ++ranks) check_engine(ranks, "gloo");
}

TEST(Deterministic, WithoutTheOptionTheLayoutOfHostsShows) {
  if (!have_gloo()) GTEST_SKIP() << "this build has no Gloo";
  testing::run_ranks(
      4, "auto",
      [](Context& context) {
        EXPECT_FALSE(context.deterministic());
        at::Tensor tensor = testing::contribution(context.rank(), 1003, at::kFloat);
        all_reduce(tensor, context.world());
        EXPECT_FALSE(at::equal(tensor, testing::expected_sum(4, 1003, at::kFloat, false)));
      },
      std::chrono::seconds(60), in_turns(4, 2));
}

TEST(Deterministic, IsWhatRankZeroAsksFor) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  tests::run_rank_threads(2, [&](int rank) {
    const Context context = init(
        {.backend = "native", .rank = rank, .world_size = 2, .store = store, .deterministic = rank == 0});
    EXPECT_TRUE(context.deterministic());
  });
}

TEST(Deterministic, IsOneOrZero) {
  const Variable wanted(kDeterministicVariable, "yes");
  const InitOptions alone{.rank = 0, .world_size = 1, .store = c10::make_intrusive<c10d::HashStore>()};
  testing::expect_facts(testing::message_of<UsageError>([&] { init(alone); }),
                        {"RONDO_DETERMINISTIC=yes", "1", "0"});
}

TEST(Deterministic, IsNotForALossyCodec) {
  if (!have_gloo()) GTEST_SKIP() << "this build has no Gloo";
  const auto store = c10::make_intrusive<c10d::HashStore>();
  tests::run_rank_threads(2, [&](int rank) {
    const InitOptions lossy{.backend = "hierarchical(native, gloo, codec=int8)",
                            .rank = rank,
                            .world_size = 2,
                            .store = store,
                            .host = str("host ", rank),
                            .deterministic = true};
    testing::expect_facts(testing::message_of<UsageError>([&] { init(lossy); }), {"codec=int8"});
  });
}

}  // namespace
}  // namespace rondo::deterministic_test
