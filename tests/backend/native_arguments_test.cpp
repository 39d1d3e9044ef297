// The native engine with overlapping tensors, several tensors in one call, and pieces of any sizes.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>

#include "rondo/backend/collectives.h"
#include "rondo/backend/native/native_backend.h"
#include "rondo/base/error.h"
#include "tests/backend/ranks.h"

namespace rondo::native_arguments_test {
namespace {

using testing::run_ranks;
using Work = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;
using Lists = std::vector<Tensors>;

TEST(NativeOverlap, IsRefusedByNameBeforeAnythingMoves) {
  run_ranks(2, "native", [](Context& context) {
    c10d::Backend& backend = *context.world().backend();
    at::Tensor shared = at::ones({10});
    Tensors twice{shared, shared};
    Tensors views{shared.narrow(0, 0, 6), shared.narrow(0, 4, 6)};
    Tensors expanded{at::ones({1}).expand({10})};
    Lists lists{twice};
    Tensors input{at::ones({10})};
    at::Tensor part = shared.narrow(0, 1, 5);
    at::Tensor out = at::ones({5});
    std::vector<std::int64_t> equal;
    EXPECT_THROW(backend.allreduce(expanded), UsageError);
    EXPECT_THROW(backend.broadcast(expanded), UsageError);
    EXPECT_THROW(backend.allgather(lists, input), UsageError);
    EXPECT_THROW(backend._allgather_base(shared, part), UsageError);
    EXPECT_THROW(backend._reduce_scatter_base(part, shared), UsageError);
    EXPECT_THROW(backend.alltoall_base(shared, shared, equal, equal), UsageError);
    EXPECT_THROW(backend.alltoall(twice, views), UsageError);
    EXPECT_THROW(backend.recv(expanded, 1 - context.rank(), 0), UsageError);
    EXPECT_THROW(backend.recvAnysource(expanded, 0), UsageError);
    EXPECT_EQ(backend.getSequenceNumberForGroup(), 0U) << "nothing was started";

    // A valid receive still gets the message; a tensor that is only read may be expanded.
    backend.send(expanded, 1 - context.rank(), 0);
    Tensors received{at::zeros({10})};
    backend.recv(received, 1 - context.rank(), 0)->wait();
    EXPECT_TRUE(received.front().eq(1).all().item<bool>());

    // Each entry of a coalesced list is reduced from its own contents, as over Gloo.
    backend.allreduce_coalesced(twice)->wait();
    EXPECT_TRUE(shared.eq(2).all().item<bool>());
    backend.allreduce_coalesced(views)->wait();
    EXPECT_TRUE(shared.eq(4).all().item<bool>());

    // Not an overlap.
    at::Tensor matrix = at::zeros({4, 2});
    Lists columns{matrix.unbind(1)};
    Tensors mine{at::full({4}, static_cast<float>(context.rank()))};
    backend.allgather(columns, mine)->wait();
    EXPECT_EQ(matrix.sum().item<float>(), 4);
    at::Tensor whole = at::full({8}, static_cast<float>(context.rank()));
    at::Tensor own = whole.narrow(0, context.rank() * 4, 4);
    backend._allgather_base(whole, own)->wait();
    EXPECT_EQ(whole.sum().item<float>(), 4);
    at::Tensor summed = at::ones({8});
    own = summed.narrow(0, context.rank() * 4, 4);
    backend._reduce_scatter_base(own, summed)->wait();
    EXPECT_EQ(own.sum().item<float>(), 8);
  });
}

TEST(NativeSeveral, TensorsOfOneCallAreOneContribution) {
  run_ranks(2, "native", [](Context& context) {
    Tensors tensors{at::full({4}, context.rank() + 1.0F), at::full({4}, context.rank() + 10.0F)};
    context.world().backend()->allreduce(tensors)->wait();
    for (const at::Tensor& tensor : tensors) EXPECT_EQ(tensor[3].item<float>(), 1 + 2 + 10 + 11);
    tensors = {at::full({4}, context.rank() + 1.0F), at::full({4}, context.rank() + 10.0F)};
    c10d::BroadcastOptions options;
    options.rootRank = 1;
    options.rootTensor = 1;
    context.world().backend()->broadcast(tensors, options)->wait();
    for (const at::Tensor& tensor : tensors) EXPECT_EQ(tensor[3].item<float>(), 11);
  });
}

// The peers' sizes are unknown at the start: it waits for them later, and later operations keep their order.
TEST(NativeAllToAll, OfAnySizesStartsBeforeItsPeersCome) {
  std::promise<void> rank_0_has_started;
  run_ranks(2, "native", [&](Context& context) {
    c10d::Backend& backend = *context.world().backend();
    if (context.rank() == 1) {
      auto started = rank_0_has_started.get_future();
      ASSERT_EQ(started.wait_for(std::chrono::seconds(60)), std::future_status::ready);
    }
    const int rank = context.rank();
    std::vector<Work> works;
    Tensors results;
    for (const std::int64_t scale : {1, 100'000}) {
      // Rank r sends (r + 1) * scale values to rank 0 and 2 * scale to rank 1.
      at::Tensor sent = at::full({(rank + 3) * scale}, rank + 1.0F);
      results.push_back(at::zeros({rank == 0 ? 3 * scale : 4 * scale}));
      std::vector<std::int64_t> out_splits{rank == 0 ? scale : 2 * scale, 2 * scale};
      std::vector<std::int64_t> in_splits{(rank + 1) * scale, 2 * scale};
      works.push_back(backend.alltoall_base(results.back(), sent, out_splits, in_splits));
      results.push_back(at::ones({10}));
      Tensors summed{results.back()};
      works.push_back(backend.allreduce(summed));
    }
    if (rank == 0) rank_0_has_started.set_value();
    for (const Work& work : works) EXPECT_TRUE(work->wait());
    for (std::size_t i = 0; i < results.size(); i += 2) {
      const std::int64_t from_rank_0 = results[i].numel() / (rank == 0 ? 3 : 2);
      EXPECT_TRUE(results[i].narrow(0, 0, from_rank_0).eq(1).all().item<bool>());
      EXPECT_TRUE(results[i].slice(0, from_rank_0).eq(2).all().item<bool>());
      EXPECT_TRUE(results[i + 1].eq(2).all().item<bool>());
    }
  });
}

TEST(NativeAllToAll, SizeMismatchFailsTheWorkOnEveryRank) {
  run_ranks(2, "native", [](Context& context) {
    at::Tensor sent = at::ones({4});
    at::Tensor received = at::ones({context.rank() == 0 ? 4 : 5});
    std::vector<std::int64_t> even{2, 2};
    std::vector<std::int64_t> expected{context.rank() == 0 ? 2 : 3, 2};
    const Work work = context.world().backend()->alltoall_base(received, sent, expected, even);
    try {
      work->wait();
      ADD_FAILURE() << "rank " << context.rank();
    } catch (const MismatchError& e) {
      for (const char* fact : {"rank 1 expects 12 bytes", "rank 0", "sends 8"})
        EXPECT_NE(std::string(e.what()).find(fact), std::string::npos) << e.what();
    }
    EXPECT_THROW(context.world().backend()->barrier()->wait(), CommunicationError) << "the group is broken";
  });
}

}  // namespace
}  // namespace rondo::native_arguments_test
