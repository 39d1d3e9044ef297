#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "rondo/backend/context.h"

namespace rondo::testing {

// Checks calls of c10d that all of rondo's own engines take, on two ranks and more: several tensors in one
// call, pieces of unequal sizes, lists in any order, and coalesced operations.
inline void expect_calls_of_c10d(const Context& context) {
  using Tensors = std::vector<at::Tensor>;
  c10d::Backend& backend = *context.world().backend();
  const int rank = context.rank();
  const int size = context.world_size();
  const float ranks = static_cast<float>(size);
  const auto all_are = [](const at::Tensor& tensor, double value) {
    return (tensor.to(at::kDouble) - value).abs().max().item<double>() < 1e-5;
  };

  // Several tensors of one call are one contribution.
  Tensors several{at::ones({4}), at::full({8}, 2.0F).slice(0, 0, 8, 2)};
  backend.allreduce(several)->wait();
  for (const at::Tensor& tensor : several) EXPECT_TRUE(all_are(tensor, 3 * ranks)) << tensor;
  several = {at::full({4}, rank), at::full({4}, rank + 10)};
  c10d::BroadcastOptions from_last;
  from_last.rootRank = size - 1;
  from_last.rootTensor = 1;
  backend.broadcast(several, from_last)->wait();
  for (const at::Tensor& tensor : several) EXPECT_TRUE(all_are(tensor, size + 9)) << tensor;
  // A coalesced call reduces each of its tensors separately, even if they overlap.
  const at::Tensor shared = at::ones({10});
  Tensors overlapping{shared.narrow(0, 0, 6), shared.narrow(0, 4, 6)};
  backend.allreduce_coalesced(overlapping)->wait();
  EXPECT_TRUE(all_are(shared, ranks)) << shared;

  // Rank r has r + 1 elements.
  Tensors pieces;
  for (int each = 0; each < size; ++each) pieces.push_back(at::zeros({each + 1}));
  std::vector<Tensors> lists{pieces};
  Tensors own{at::full({rank + 1}, rank + 1.0F)};
  backend.allgather(lists, own)->wait();
  for (int each = 0; each < size; ++each)
    EXPECT_TRUE(all_are(pieces[static_cast<std::size_t>(each)], each + 1)) << each;
  Tensors sum{at::zeros({rank + 1})};
  for (const auto op : {c10d::ReduceOp::SUM, c10d::ReduceOp::AVG}) {
    for (at::Tensor& piece : pieces) piece.fill_(rank + 1);
    c10d::ReduceScatterOptions options;
    options.reduceOp = op;
    backend.reduce_scatter(sum, lists, options)->wait();
    const float expected = ranks * (ranks + 1) / 2;
    EXPECT_TRUE(all_are(sum.front(), op == c10d::ReduceOp::SUM ? expected : expected / ranks)) << sum.front();
    EXPECT_TRUE(all_are(pieces.front(), rank + 1)) << "an input stays";
  }

  // Two inputs per rank, listed by rank, and by input.
  Tensors inputs{at::full({2}, rank + 0.0F), at::full({3}, rank + 100.0F)};
  std::vector<Tensors> by_rank;
  for (int each = 0; each < size; ++each) by_rank.push_back({at::zeros({2}), at::zeros({3})});
  backend.allgather_coalesced(by_rank, inputs)->wait();
  for (int each = 0; each < size; ++each) {
    EXPECT_TRUE(all_are(by_rank[static_cast<std::size_t>(each)][0], each));
    EXPECT_TRUE(all_are(by_rank[static_cast<std::size_t>(each)][1], each + 100));
  }

  // Rank r sends r + 1 elements to every rank, with strides.
  Tensors sent, received;
  for (int each = 0; each < size; ++each) {
    sent.push_back(at::full({2 * (rank + 1)}, rank).slice(0, 0, 2 * (rank + 1), 2));
    received.push_back(at::full({2 * (each + 1)}, -1).slice(0, 0, 2 * (each + 1), 2));
  }
  backend.alltoall(received, sent)->wait();
  for (int each = 0; each < size; ++each)
    EXPECT_TRUE(all_are(received[static_cast<std::size_t>(each)], each)) << each;

  at::Tensor sparse = at::eye(3).to_sparse();
  Tensors rows{sparse};
  const auto reduced = backend.allreduce(rows);
  reduced->wait();
  EXPECT_EQ(reduced->result().size(), 1U);
  EXPECT_TRUE(sparse.to_dense().equal(at::eye(3) * ranks));

  Tensors first{at::ones({3})}, second{at::ones({5})};
  backend.startCoalescing();
  backend.allreduce(first);
  backend.allreduce(second);
  const auto both = backend.endCoalescing();
  both->wait();
  EXPECT_EQ(both->result().size(), 2U);
  EXPECT_TRUE(all_are(first.front(), ranks) && all_are(second.front(), ranks));
}

}  // namespace rondo::testing
