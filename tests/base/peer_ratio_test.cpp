#include "rondo/base/arithmetic.h"

#include <gtest/gtest.h>

namespace rondo::peer_ratio_test {
namespace {

TEST(PeerRatio, IsOfMediansWhereThePeerWasSteady) {
  const PeerRatio ratio = peer_ratio({.p50 = 10, .min = 8}, {.p50 = 24, .min = 8});
  EXPECT_DOUBLE_EQ(ratio.value, 2.4);
  EXPECT_FALSE(ratio.of_minima) << "three times the minimum is not more than that";
  EXPECT_EQ(to_string(ratio), "2.4x");
}

TEST(PeerRatio, UsesMinimaIfPeerMedianIsNoisy) {
  const PeerRatio ratio = peer_ratio({.p50 = 0.3, .min = 0.26}, {.p50 = 3000, .min = 130});
  EXPECT_DOUBLE_EQ(ratio.value, 500);
  EXPECT_TRUE(ratio.of_minima);
  EXPECT_EQ(to_string(ratio), "500x*");
}

TEST(PeerRatio, OurOwnNoiseDoesNotHelpUs) {
  EXPECT_DOUBLE_EQ(peer_ratio({.p50 = 100, .min = 1}, {.p50 = 200, .min = 150}).value, 2);
}

TEST(PeerRatio, OfNothingIsNothing) { EXPECT_EQ(peer_ratio({}, {.p50 = 1, .min = 1}).value, 0); }

}  // namespace
}  // namespace rondo::peer_ratio_test
