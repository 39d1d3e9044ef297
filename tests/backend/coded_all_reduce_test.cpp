#include "rondo/backend/coded_collectives.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "rondo/backend/registry.h"
#include "rondo/base/error.h"
#include "tests/backend/ranks.h"

namespace rondo::coded_all_reduce_test {
namespace {

using testing::run_ranks;

constexpr const char* kCodecs[] = {"none", "float16", "bfloat16", "int8", "top_k:0.2"};

at::Tensor values_of(int rank, std::int64_t count, std::uint64_t step = 0) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(step * 100 + rank);
  return at::randn({count}, generator, at::kFloat);
}

at::Tensor sum_of_values(int ranks, std::int64_t count, std::uint64_t step = 0) {
  at::Tensor sum = at::zeros({count}, at::kDouble);
  for (int rank = 0; rank < ranks; ++rank) sum += values_of(rank, count, step);
  return sum;
}

bool same_on_all_ranks(const at::Tensor& tensor, const Group& group) {
  for (const at::Tensor& other : all_gather(tensor, group)) {
    if (!at::equal(other, tensor)) return false;
  }
  return true;
}

// Every engine, codec, count and operation, on 1 to 5 ranks.
TEST(CodedAllReduce, RanksGetSameSumWithinTheBound) {
  for (const char* engine : {"native", "gloo"}) {
    for (const int ranks : {1, 2, 3, 5}) {
      run_ranks(ranks, engine, [&](Context& context) {
        const Group group = context.world();
        for (const char* name : kCodecs) {
          const auto codec = collective::make_codec(name);
          for (const std::int64_t count : {0, 1, 3, 1000, 4096, 10007, 70001}) {
            for (const ReduceOp op : {ReduceOp::SUM, ReduceOp::AVG}) {
              at::Tensor tensor = values_of(context.rank(), count);
              all_reduce(tensor, group, name, op);
              ASSERT_TRUE(same_on_all_ranks(tensor, group)) << engine << name << count;
              if (count == 0) continue;
              const double divisor = op == ReduceOp::AVG ? ranks : 1;
              const at::Tensor expected = sum_of_values(ranks, count) / divisor;
              // Each rank's values and the sum are encoded.
              double bound = ranks == 1 ? 0 : codec->error_bound(6.0 * ranks);
              for (int rank = 0; rank < ranks; ++rank) bound += codec->error_bound(6) / divisor;
              ASSERT_LE((tensor - expected).abs().max().item<double>(), bound + 1e-5)
                  << engine << " " << name << " " << count << " " << ranks;
            }
          }
        }
      });
    }
  }
}

TEST(CodedAllReduce, ErrorFeedbackMakesUpForEveryEncoding) {
  constexpr int ranks = 3;
  constexpr std::int64_t count = 6000;
  constexpr int steps = 60;
  run_ranks(ranks, "native", [&](Context& context) {
    for (const char* name : {"int8", "top_k:0.05"}) {
      const auto total_error = [&](bool feedback) {
        CodedAllReduce reduction(collective::make_codec(name), context.world().backend(), ReduceOp::AVG,
                                 feedback);
        at::Tensor received = at::zeros({count}, at::kDouble);
        at::Tensor given = at::zeros({count}, at::kDouble);
        for (int step = 0; step < steps; ++step) {
          // Small values next to a large one in each block: nearly all of them are rounded away.
          const at::Tensor large = at::zeros({count}).index_fill_(0, at::arange(0, count, 256), 400);
          const at::Tensor mine = values_of(context.rank(), count, 1) + large;
          given += sum_of_values(ranks, count, 1) / ranks + large;
          reduction.run(mine);
          received += mine;
        }
        return ((received - given).abs().max() / steps).item<double>();
      };
      const double with = total_error(true);
      const double without = total_error(false);
      // The missing part is at most the residuals, which do not grow with the steps.
      EXPECT_LT(with, without / 4) << name << " " << with << " " << without;
    }
  });
}

TEST(CodedAllReduce, AnyStridesAndNothingElseThanFloat32) {
  run_ranks(2, "native", [](Context& context) {
    at::Tensor tensor = (values_of(0, 12) + context.rank()).view({3, 4}).t();
    const at::Tensor expected = (values_of(0, 12) * 2 + 1).view({3, 4}).t();
    all_reduce(tensor, context.world(), "none");
    EXPECT_TRUE(at::allclose(tensor, expected));

    at::Tensor wide = at::zeros({4}, at::kDouble);
    EXPECT_THROW(all_reduce(wide, context.world(), "int8"), UsageError);
    EXPECT_THROW(all_reduce(tensor, context.world(), "int7"), UsageError);
    EXPECT_THROW(all_reduce(tensor, context.world(), "int8", ReduceOp::MAX), UsageError);
  });
}

}  // namespace
}  // namespace rondo::coded_all_reduce_test
