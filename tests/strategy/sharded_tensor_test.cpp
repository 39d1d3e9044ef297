#include "rondo/strategy/sharded_tensor.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>

#include "rondo/base/error.h"
#include "tests/backend/ranks.h"

namespace rondo::sharded_tensor_test {
namespace {

using testing::run_ranks;

TEST(ShardedTensor, MovesBetweenLayoutsAndBecomesFullAgain) {
  for (const int ranks : {1, 2, 3, 4}) {
    run_ranks("native", ranks, [&](const Group& group) {
      const at::Tensor full = torch::arange(5 * 7, at::kDouble).view({5, 7});
      const ShardedTensor rows = ShardedTensor::of_full(full, 0, group);
      // Three ranks have 2, 2 and 1 rows; of four the last has none.
      const std::int64_t part = (5 + ranks - 1) / ranks;
      EXPECT_EQ(rows.box().sizes[0], std::clamp<std::int64_t>(5 - part * group.rank(), 0, part));
      EXPECT_TRUE(at::equal(rows.full(), full));

      const ShardedTensor columns = rows.redistribute(1);
      const Box& box = columns.box();
      EXPECT_EQ(box, ShardedTensor::part_along({5, 7}, 1, group.rank(), ranks));
      EXPECT_TRUE(at::equal(columns.local(), full.narrow(1, box.offsets[1], box.sizes[1])));

      // Any boxes, which may overlap and omit elements.
      const ShardedTensor middle = columns.redistribute(Box{{1, 2}, {3, 4}});
      EXPECT_TRUE(at::equal(middle.local(), full.narrow(0, 1, 3).narrow(1, 2, 4)));
      EXPECT_THROW(middle.full(), UsageError);
      EXPECT_THROW(middle.redistribute(0), UsageError);
      EXPECT_TRUE(at::equal(columns.full(), full));
    });
  }
}

TEST(ShardedTensor, ABoxThatLeavesTheTensorIsRefused) {
  run_ranks("native", 1, [&](const Group& group) {
    EXPECT_THROW(ShardedTensor({4, 4}, {2, 0}, torch::zeros({3, 4}), group), UsageError);
    EXPECT_THROW(ShardedTensor::of_full(torch::zeros({4}), 1, group), UsageError);
  });
}

}  // namespace
}  // namespace rondo::sharded_tensor_test
