#include "rondo/strategy/shard_directory.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <map>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "tests/backend/ranks.h"
#include "tests/errors.h"
#include "tests/nn/random_shards.h"

// Tests of moves between ranks, compared with the full tensors of the shards.
namespace rondo::shard_directory_test {
namespace {

using testing::expect_facts;
using testing::message_of;
using testing::RandomShards;
using testing::run_ranks;

struct Tensors {
  std::map<std::string, at::Tensor> full;
  std::vector<std::vector<Shard>> held;    // by rank
  std::vector<std::vector<Shard>> wanted;  // by rank
};

at::Tensor unset(const Shard& shard, at::ScalarType dtype) { return at::full(shard.local_sizes(), 7, dtype); }

// Every element is on at least one rank; pieces overlap, and ranks have several pieces of a tensor or none.
Tensors random_tensors(unsigned seed, int ranks) {
  RandomShards random(seed);
  Tensors result;
  result.held.resize(static_cast<std::size_t>(ranks));
  result.wanted.resize(static_cast<std::size_t>(ranks));
  const auto any_rank = [&] { return static_cast<std::size_t>(random.number(0, ranks - 1)); };
  for (int t = 0; t < 6; ++t) {
    const std::string name = "tensor" + std::to_string(t);
    const std::vector<std::int64_t> sizes = random.sizes();
    std::int64_t elements = 1;
    for (const std::int64_t size : sizes) elements *= size;
    constexpr std::array kDtypes = {at::kFloat, at::kDouble, at::kLong, at::kByte};
    const at::ScalarType dtype = kDtypes[static_cast<std::size_t>(random.number(0, 3))];
    const at::Tensor full = at::arange(elements, at::kLong).reshape(sizes).to(dtype);
    result.full[name] = full;
    const auto hold = [&](Shard shard) {
      shard.local = cut(full, shard).clone();
      shard.replica = static_cast<int>(random.number(0, 2));
      result.held[any_rank()].push_back(std::move(shard));
    };
    // Ranges that cover the tensor, and others that overlap.
    for (std::int64_t begin = 0; begin < elements;) {
      const std::int64_t end = random.number(begin + 1, elements);
      hold(flat_shard(name, sizes, begin, at::empty({end - begin})));
      begin = end;
    }
    for (int i = 0; i < 2; ++i) hold(random.shard(name, sizes));
    for (int i = 0; i < 2 * ranks; ++i) {
      Shard shard = random.shard(name, sizes);
      shard.local = unset(shard, dtype);
      result.wanted[any_rank()].push_back(std::move(shard));
    }
  }
  return result;
}

TEST(ShardDirectory, RandomShardsMoveAsTheFullTensorsSay) {
  for (const std::string engine : {"native", "gloo"}) {
    for (int ranks = 1; ranks <= 4; ++ranks) {
      run_ranks(ranks, engine, [&](Context& context) {
        for (unsigned seed = 0; seed < 15; ++seed) {
          const Tensors tensors = random_tensors(seed, ranks);
          const auto own = static_cast<std::size_t>(context.rank());
          const ShardDirectory directory(tensors.held[own], context.world());
          std::vector<Shard> wanted = tensors.wanted[own];
          EXPECT_EQ(directory.fetch(wanted), std::vector<std::string>()) << seed;
          for (const Shard& shard : wanted) {
            EXPECT_TRUE(at::equal(shard.local, cut(tensors.full.at(shard.name), shard)))
                << engine << " " << ranks << " " << seed << " " << describe_address(shard);
          }
          const int root = static_cast<int>(seed) % ranks;
          for (const auto& [name, full] : tensors.full) {
            EXPECT_TRUE(at::equal(directory.full(name), full)) << seed << " " << name;
            const at::Tensor at_root = directory.full(name, root);
            EXPECT_EQ(at_root.defined(), context.rank() == root);
            if (at_root.defined()) {
              EXPECT_TRUE(at::equal(at_root, full)) << seed << " " << name;
            }
          }
        }
      });
    }
  }
}

TEST(ShardDirectory, PrefersOwnShardsThenTheLowestCopy) {
  run_ranks(3, "native", [](Context& context) {
    const double own = context.rank();
    // Different copies reveal the source of a value. Rank 2 has the lowest copy, rank 0 none.
    std::vector<Shard> held;
    if (context.rank() > 0) held.push_back(full_shard("t", at::full({4}, own), 2 - context.rank()));
    const ShardDirectory directory(held, context.world());
    const at::Tensor full = directory.full("t");
    EXPECT_TRUE(at::equal(full, at::full({4}, context.rank() == 1 ? 1.0 : 2.0)));
    EXPECT_EQ(full.is_alias_of(context.rank() > 0 ? held.front().local : at::Tensor(at::empty({1}))),
              context.rank() > 0);
  });
}

TEST(ShardDirectory, ValuesAreConvertedAndReadInPlace) {
  run_ranks(2, "native", [](Context& context) {
    const ShardDirectory directory(context.rank() == 0
                                       ? std::vector<Shard>{full_shard("t", at::full({2, 3}, 1.5))}
                                       : std::vector<Shard>(),
                                   context.world());
    at::Tensor into = at::zeros({3, 2}, at::kDouble);
    std::vector<Shard> wanted = {full_shard("t", into.t())};  // any strides
    EXPECT_TRUE(directory.fetch(wanted).empty());
    EXPECT_TRUE(at::equal(into, at::full({3, 2}, 1.5, at::kDouble)));
  });
}

TEST(ShardDirectory, MissingShardIsNamedAndChangesNothing) {
  run_ranks(2, "native", [](Context& context) {
    const bool first = context.rank() == 0;
    // Elements 5 and 6 of [4, 3] are on no rank.
    std::vector<Shard> held = {first ? flat_shard("a", {4, 3}, 0, at::ones({5}))
                                     : flat_shard("a", {4, 3}, 7, at::ones({5}))};
    held.push_back(full_shard("b", at::ones({2})));
    const ShardDirectory directory(held, context.world());
    std::vector<Shard> wanted = {full_shard("b", at::zeros({2})), full_shard("a", at::zeros({4, 3}))};
    if (first) wanted.push_back(full_shard("c", at::zeros({1})));
    const std::vector<std::string> missing = directory.fetch(wanted);
    ASSERT_EQ(missing.size(), 2U);  // both ranks lack the same elements of a
    expect_facts(missing[0], {"2 elements", "'a'", "[4, 3]", "[1, 2]"});
    expect_facts(missing[1], {"'c'"});
    EXPECT_EQ(wanted[0].local.sum().item<double>(), 0);
    expect_facts(message_of<UsageError>([&] { directory.full("a"); }), {"2 elements", "'a'"});
    expect_facts(message_of<UsageError>([&] { directory.full("z"); }), {"'z'"});
    std::vector<Shard> only_b = {full_shard("b", at::zeros({2}))};
    EXPECT_TRUE(directory.fetch(only_b).empty());
    const std::vector<std::string> unwanted = directory.fetch(only_b, /*exact=*/true);
    ASSERT_EQ(unwanted.size(), 1U);
    expect_facts(unwanted[0], {"'a'"});
    only_b[0].global_sizes = only_b[0].sizes = {3};
    only_b[0].local = at::zeros({3});
    expect_facts(directory.fetch(only_b).front(), {"'b'", "[2]", "[3]"});
  });
}

TEST(ShardDirectory, RefusesInvalidShardsOnAllRanks) {
  run_ranks(2, "native", [](Context& context) {
    Shard wrong = full_shard("a", at::ones({2}));
    if (context.rank() == 1) wrong.offsets = {1};
    expect_facts(message_of<UsageError>([&] { ShardDirectory({wrong}, context.world()); }),
                 {"rank 1", "'a'", "[2]"});
    const Shard other = full_shard("a", at::ones({2 + context.rank()}));
    expect_facts(message_of<UsageError>([&] { ShardDirectory({other}, context.world()); }),
                 {"'a'", "[2]", "[3]"});
  });
}

}  // namespace
}  // namespace rondo::shard_directory_test
