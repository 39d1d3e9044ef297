#include "rondo/server/placement.h"

#include <gtest/gtest.h>

#include "rondo/base/error.h"
#include "tests/errors.h"

namespace rondo::placement_test {
namespace {

using namespace server;
using testing::expect_facts;
using testing::message_of;
using Counts = std::vector<std::uint64_t>;

std::uint64_t shards(const std::string& text, std::uint64_t rows, std::uint64_t row_elements) {
  return Partitioner::parse(text, "ps-partitioner").shards_of({"v", rows, row_elements, false});
}

TEST(Partitioner, DividesRowsWithTheFirstShardsLarger) {
  EXPECT_EQ(divide_rows(13, 5), (Counts{3, 3, 3, 2, 2}));
  EXPECT_EQ(divide_rows(4, 4), (Counts{1, 1, 1, 1}));
}

TEST(Partitioner, HasTheShardsOfTensorFlow) {
  EXPECT_EQ(shards("fixed:5", 13, 1), 5U);
  EXPECT_EQ(shards("fixed:5", 3, 1), 3U);
  EXPECT_EQ(shards("min-size:4:2", 6, 1), 2U);
  EXPECT_EQ(shards("min-size:256KiB", 6, 1), 1U);
  EXPECT_EQ(shards("max-size:4", 6, 1), 6U);
  EXPECT_EQ(shards("max-size:4:2", 6, 1), 2U);
  EXPECT_EQ(shards("max-size:1024", 6, 1), 1U);
  EXPECT_EQ(shards("max-size:8", 3, 100), 3U);  // a shard has at least one row
}

TEST(Partitioner, RefusesZeroShardsAndWhatIsNoPartitioner) {
  expect_facts(message_of<UsageError>([] { Partitioner::parse("fixed:0", "ps-partitioner"); }),
               {"ps-partitioner", "fixed:0", "0"});
  for (const char* text : {"", "fixed", "fixed:-1", "fixed:x", "max-size:0", "min-size:1KiB:0", "other:3"})
    EXPECT_THROW(Partitioner::parse(text, "ps-partitioner"), UsageError) << text;
}

TEST(Placement, GoesRoundOrBySize) {
  const std::vector<VariableSpec> variables = {
      {"a", 10, 100, false}, {"b", 10, 1, false}, {"c", 8, 100, false}, {"d", 3, 1, false}};
  const std::vector<Shard> round = place(variables, 2, {}, Placement::round_robin);
  EXPECT_EQ(round[2].server, 0U);
  EXPECT_EQ(round[2].number, 1U);
  EXPECT_EQ(round[3].server, 1U);
  const std::vector<Shard> sized = place(variables, 2, {}, Placement::by_size);
  EXPECT_EQ(sized[0].server, 0U);
  EXPECT_EQ(sized[2].server, 1U);
  EXPECT_EQ(sized[1].server, 1U);
  const auto parts = place(variables, 3, Partitioner::parse("fixed:3", ""), Placement::round_robin);
  ASSERT_EQ(parts.size(), 12U);
  const std::vector<VariableSpec> second = variables_of(variables, parts, 1);
  ASSERT_EQ(second.size(), 4U);
  EXPECT_EQ(second[0].name, "a/rows_4");
  EXPECT_EQ(second[0].rows, 3U);
}

}  // namespace
}  // namespace rondo::placement_test
