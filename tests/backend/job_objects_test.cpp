#include "rondo/backend/engine/job_objects.h"

#include <gtest/gtest.h>

#include "rondo/backend/context.h"
#include "rondo/backend/registry.h"

namespace rondo::job_objects_test {
namespace {

TEST(JobObjects, SharesOneObjectPerTypeWhileUsed) {
  JobObjects objects;
  EXPECT_EQ(objects.find<int>(), nullptr);
  auto number = std::make_shared<int>(3);
  const auto text = std::make_shared<std::string>("text");
  objects.set(number);
  objects.set(text);
  EXPECT_EQ(objects.find<int>(), number);
  EXPECT_EQ(objects.find<std::string>(), text);
  const auto other = std::make_shared<std::string>("other");
  objects.set(other);
  EXPECT_EQ(objects.find<std::string>(), other);
  number.reset();
  EXPECT_EQ(objects.find<int>(), nullptr);
}

TEST(JobObjects, AreOfOneJob) {
  std::vector<std::shared_ptr<JobObjects>> seen;
  register_backend("noting", [&](const BackendRequest& request) {
    seen.push_back(request.job_objects);
    return make_backend("native", request);
  });
  const Context first = init({.backend = "noting", .init_method = "alone"});
  first.new_group({0});
  first.within(first.world()).new_group({0});
  const Context second = init({.backend = "noting", .init_method = "alone"});
  ASSERT_EQ(seen.size(), 4);
  ASSERT_NE(seen[0], nullptr);
  EXPECT_EQ(seen[1], seen[0]);
  EXPECT_EQ(seen[2], seen[0]);
  EXPECT_NE(seen[3], seen[0]);
}

}  // namespace
}  // namespace rondo::job_objects_test
