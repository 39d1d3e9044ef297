#include "rondo/env/mesh.h"

#include <gtest/gtest.h>

#include "rondo/base/error.h"
#include "tests/errors.h"

namespace rondo::mesh_test {
namespace {

using ::rondo::testing::expect_facts;
using ::rondo::testing::message_of;

TEST(Mesh, LiesOnRanksWithTensorInnermost) {
  const Mesh mesh = ordered_mesh(parse_mesh("tensor=2,data=2,pipeline=2", "--mesh"), 8);
  EXPECT_EQ(mesh, (Mesh{{"pipeline", 2}, {"data", 2}, {"tensor", 2}}));
  EXPECT_EQ(to_string(mesh), "pipeline=2,data=2,tensor=2");
  using Ranks = std::vector<std::vector<int>>;
  EXPECT_EQ(ranks_along(mesh, {"tensor"}), (Ranks{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(ranks_along(mesh, {"data"}), (Ranks{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(ranks_along(mesh, {"pipeline"}), (Ranks{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(ranks_along(mesh, {"pipeline", "tensor"}), (Ranks{{0, 1, 4, 5}, {2, 3, 6, 7}}));
  EXPECT_EQ(ranks_along(mesh, {"expert"}).size(), 8u);
}

TEST(Mesh, AlwaysHasData) {
  EXPECT_EQ(ordered_mesh({{"pipeline", 3}}, 3), (Mesh{{"pipeline", 3}, {"data", 1}}));
  EXPECT_EQ(size_along({{"pipeline", 3}}, "pipeline"), 3);
  EXPECT_EQ(size_along({{"pipeline", 3}}, "tensor"), 1);
}

TEST(Mesh, RefusesWhatCannotBe) {
  expect_facts(message_of<UsageError>([] { ordered_mesh({{"pipeline", 2}, {"data", 2}}, 3); }), {"4", "3"});
  expect_facts(message_of<UsageError>([] {
                 ordered_mesh({{"rows", 2}}, 2);
               }),
               {"'rows'", "pipeline", "tensor"});
  expect_facts(message_of<UsageError>([] { ordered_mesh({{"data", 2}, {"data", 1}}, 2); }), {"'data'"});
  expect_facts(message_of<UsageError>([] { parse_mesh("pipeline", "--mesh"); }), {"--mesh", "'pipeline'"});
  expect_facts(message_of<UsageError>([] { parse_mesh("pipeline=0", "--mesh"); }), {"--mesh", "0"});
  expect_facts(message_of<UsageError>([] { parse_mesh("pipeline=x", "--mesh"); }), {"--mesh", "x"});
}

}  // namespace
}  // namespace rondo::mesh_test
