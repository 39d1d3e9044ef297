#include "rondo/nn/shard.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <random>

#include "rondo/base/error.h"
#include "tests/errors.h"
#include "tests/nn/random_shards.h"

namespace rondo::shard_test {
namespace {

using testing::RandomShards;

// Returns a tensor with distinct elements.
at::Tensor numbered(const std::vector<std::int64_t>& sizes) {
  std::int64_t elements = 1;
  for (const std::int64_t size : sizes) elements *= size;
  return at::arange(elements, at::kLong).reshape(sizes);
}

TEST(Shard, RangesBecomeBoxesInOrder) {
  RandomShards random(1);
  for (int round = 0; round < 500; ++round) {
    const std::vector<std::int64_t> sizes = random.sizes();
    Shard shard = random.shard("t", sizes);
    const at::Tensor full = numbered(sizes);
    const at::Tensor expected = cut(full, shard).flatten();
    ASSERT_EQ(expected.numel(), shard.elements());
    const std::vector<Box> boxes = boxes_of(shard);
    const std::size_t of_blocks = shard.blocks > 1 ? static_cast<std::size_t>(shard.blocks) + 1 : 0;
    EXPECT_LE(boxes.size(), std::max<std::size_t>(1, 2 * sizes.size() - (sizes.empty() ? 0 : 1)) + of_blocks);
    std::vector<at::Tensor> pieces = {at::empty({0}, at::kLong)};
    for (const Box& box : boxes) {
      at::Tensor piece = full;
      for (std::size_t d = 0; d < sizes.size(); ++d)
        piece = piece.narrow(static_cast<std::int64_t>(d), box.offsets[d], box.sizes[d]);
      EXPECT_EQ(piece.numel(), box.elements());
      pieces.push_back(piece.flatten());
    }
    EXPECT_TRUE(at::equal(at::cat(pieces), expected)) << describe_address(shard);
  }
}

TEST(Shard, ViewOfABoxIsThatPart) {
  RandomShards random(2);
  for (int round = 0; round < 500; ++round) {
    const std::vector<std::int64_t> sizes = random.sizes();
    const at::Tensor full = numbered(sizes);
    Shard held = random.shard("t", sizes);
    held.local = cut(full, held).clone();
    EXPECT_EQ(fault_of(held), "");
    for (const Box& wanted : boxes_of(random.shard("t", sizes))) {
      for (const Box& piece : boxes_of(held)) {
        const std::optional<Box> common = overlap(wanted, piece);
        if (!common) continue;
        at::Tensor expected = full;
        for (std::size_t d = 0; d < sizes.size(); ++d)
          expected = expected.narrow(static_cast<std::int64_t>(d), common->offsets[d], common->sizes[d]);
        const at::Tensor view = view_of(held, *common);
        EXPECT_TRUE(at::equal(view, expected)) << describe_address(held);
        EXPECT_TRUE(view.is_alias_of(held.local));
      }
    }
  }
}

TEST(Shard, SubtractionLeavesTheOtherBoxes) {
  RandomShards random(3);
  for (int round = 0; round < 500; ++round) {
    const std::vector<std::int64_t> sizes = random.sizes();
    const Shard outer = random.box("t", sizes);
    const Shard other = random.box("t", sizes);
    const Box box{outer.offsets, outer.sizes};
    const std::optional<Box> hole = overlap(box, {other.offsets, other.sizes});
    if (!hole) continue;
    at::Tensor count = at::zeros(sizes, at::kInt);
    const auto part = [&](const Box& of) {
      at::Tensor view = count;
      for (std::size_t d = 0; d < sizes.size(); ++d)
        view = view.narrow(static_cast<std::int64_t>(d), of.offsets[d], of.sizes[d]);
      return view;
    };
    for (const Box& rest : without(box, *hole)) part(rest) += 1;
    part(*hole) += 1;
    at::Tensor expected = at::zeros(sizes, at::kInt);
    std::swap(count, expected);
    part(box) += 1;
    EXPECT_TRUE(at::equal(count, expected))
        << describe_address(outer) << ", hole in " << describe_address(other);
  }
}

TEST(Shard, FaultsAreNamed) {
  Shard shard = full_shard("layer.weight", at::zeros({3, 4}));
  EXPECT_EQ(fault_of(shard), "");
  shard.offsets = {1, 0};
  testing::expect_facts(fault_of(shard), {"'layer.weight'", "[1, 0]", "[3, 4]"});
  shard = flat_shard("layer.weight", {3, 4}, 9, at::zeros({4}));
  testing::expect_facts(fault_of(shard), {"'layer.weight'", "[9, 13)", "[3, 4]"});
  shard.within = FlatRange{2, 5};
  testing::expect_facts(fault_of(shard), {"'layer.weight'", "[2, 5)", "[4]"});
  EXPECT_THROW(view_of(full_shard("t", at::zeros({2})), {{1}, {2}}), UsageError);
}

}  // namespace
}  // namespace rondo::shard_test
