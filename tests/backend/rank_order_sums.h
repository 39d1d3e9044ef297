#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "rondo/backend/collectives.h"
#include "rondo/backend/context.h"
#include "rondo/base/text.h"

// Sums that depend on the order of additions: for tests on any engine.
namespace rondo::testing {

inline at::Tensor contribution(int rank, std::int64_t elements, at::ScalarType type) {
  const at::Tensor numbers = at::tensor({1e8, 1.0, -1e8, 0.3, 3e7, -3e7, 7.7}, at::kDouble);
  const at::Tensor at_random = (at::arange(elements, at::kLong) + 1) * (2 * rank + 3) * 40503;
  return numbers.index_select(0, at_random.bitwise_xor(at_random.floor_divide(512)).remainder(7)).to(type);
}

// Returns the sum in the order of ranks, in float32, rounded once.
inline at::Tensor expected_sum(int ranks, std::int64_t elements, at::ScalarType type, bool average) {
  at::Tensor sum = contribution(0, elements, type).to(at::kFloat);
  for (int rank = 1; rank < ranks; ++rank) sum += contribution(rank, elements, type).to(at::kFloat);
  if (average) sum *= static_cast<float>(1.0 / ranks);
  return sum.to(type);
}

// Checks all reductions, on every rank of the context.
inline void expect_sums_in_rank_order(const Context& context, std::int64_t elements) {
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
  // Results that do not depend on the order use the ordinary path.
  at::Tensor counts = at::full({100}, world.rank(), at::kLong);
  all_reduce(counts, world);
  EXPECT_EQ(counts.min().item<long>(), ranks * (ranks - 1) / 2);
  barrier(world);
}

}  // namespace rondo::testing
