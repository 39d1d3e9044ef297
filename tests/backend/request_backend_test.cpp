// One adapter converts c10d's calls to requests for all of rondo's own engines; over mpi, launched_ranks.cpp
// tests it.
#include <gtest/gtest.h>

#include "rondo/base/error.h"
#include "tests/backend/host_layouts.h"
#include "tests/backend/ranks.h"
#include "tests/backend/request_calls.h"

namespace rondo::request_backend_test {
namespace {

TEST(RequestBackend, TakesTheSameCallsOverEveryEngine) {
  testing::run_ranks(3, "native", [](Context& context) { testing::expect_calls_of_c10d(context); });
  for (const std::vector<int>& hosts : host_layouts::kLayouts) {
    host_layouts::run_layout(hosts, [](Context& context) { testing::expect_calls_of_c10d(context); });
  }
}

TEST(RequestBackend, SaysWhichSplitsDoNotFit) {
  testing::run_ranks(2, "native", [](Context& context) {
    at::Tensor input = at::ones({4}), output = at::ones({4}), scalar = at::ones({});
    std::vector<std::int64_t> equal, wrong{3, 2};
    try {
      context.world().backend()->alltoall_base(output, input, equal, wrong);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const UsageError& error) {
      for (const char* fact : {"all_to_all", "3, 2", "first dimension of 4", "2 ranks"})
        EXPECT_NE(std::string(error.what()).find(fact), std::string::npos) << error.what();
    }
    EXPECT_THROW(context.world().backend()->alltoall_base(output, scalar, equal, equal), UsageError);
  });
}

}  // namespace
}  // namespace rondo::request_backend_test
