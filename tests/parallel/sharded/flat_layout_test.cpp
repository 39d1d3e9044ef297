#include "rondo/parallel/sharded/flat_parameters.h"

#include <gtest/gtest.h>

#include <numeric>

#include "rondo/base/random.h"

namespace rondo::flat_layout_test {
namespace {

struct Shape {
  std::vector<std::int64_t> parameters;
  int ranks;
  std::int64_t segment;
};

Shape random_shape(RandomStream& random) {
  Shape shape{{}, static_cast<int>(1 + random.below(9)), static_cast<std::int64_t>(random.below(4000))};
  const std::uint64_t parameters = 1 + random.below(8);
  for (std::uint64_t i = 0; i < parameters; ++i) {
    shape.parameters.push_back(static_cast<std::int64_t>(random.below(random.below(2) == 0 ? 5 : 3000)));
  }
  return shape;
}

TEST(FlatLayout, EveryElementHasOnePlaceAndOneOwner) {
  RandomStream random(1);
  for (int round = 0; round < 300; ++round) {
    const Shape shape = random_shape(random);
    const FlatLayout layout(shape.parameters, shape.ranks, shape.segment);
    std::int64_t end = 0;
    for (std::size_t i = 0; i < shape.parameters.size(); ++i) {
      const ElementRange place = layout.place(i);
      EXPECT_EQ(place.size(), shape.parameters[i]);
      EXPECT_GE(place.begin, end);
      EXPECT_EQ(place.begin % FlatLayout::kAlignment, 0);
      end = place.end;
      std::int64_t covered = 0;
      for (int rank = 0; rank < shape.ranks; ++rank) {
        const FlatLayout::Slice slice = layout.slice(i, rank);
        if (slice.of_parameter.size() == 0) continue;
        EXPECT_EQ(slice.of_parameter.begin, covered);
        covered = slice.of_parameter.end;
        // The slice's offset in the shard matches its position in the flat buffer.
        EXPECT_EQ(layout.shard(rank).begin + slice.in_shard, place.begin + slice.of_parameter.begin);
      }
      EXPECT_EQ(covered, shape.parameters[i]);
    }
    EXPECT_GE(layout.flat_elements(), end);
    EXPECT_EQ(layout.flat_elements(), layout.shard_elements() * shape.ranks);
  }
}

TEST(FlatLayout, SegmentsCoverEveryShardOnce) {
  RandomStream random(2);
  for (int round = 0; round < 300; ++round) {
    const Shape shape = random_shape(random);
    const FlatLayout layout(shape.parameters, shape.ranks, shape.segment);
    std::int64_t covered = 0;
    for (std::size_t segment = 0; segment < layout.segments(); ++segment) {
      EXPECT_EQ(layout.segment(segment).begin, covered);
      EXPECT_GT(layout.segment(segment).size(), 0);
      covered = layout.segment(segment).end;
    }
    EXPECT_EQ(covered, layout.shard_elements());
  }
}

TEST(FlatLayout, SegmentsAreAboutAsLargeAsAsked) {
  const std::vector<std::int64_t> parameters = {1000000};
  const FlatLayout layout(parameters, 4, 100000);
  EXPECT_EQ(layout.segments(), 10U);
  EXPECT_EQ(FlatLayout(parameters, 4).segments(), 1U);
}

}  // namespace
}  // namespace rondo::flat_layout_test
