#include "rondo/backend/engine/nccl_module.h"

#include <gtest/gtest.h>

#include "tests/errors.h"

namespace rondo::nccl_versions_test {
namespace {

constexpr NcclVersion kWheel{2, 28, 9};

TEST(NcclVersions, AreReadAsNcclCounts) {
  EXPECT_EQ(nccl_version_of(22809), kWheel);
  EXPECT_EQ(nccl_version_of(22809).text(), "2.28.9");
}

TEST(NcclVersions, ALibraryServesProgramsOfEarlierVersions) {
  EXPECT_EQ(nccl_mismatch(kWheel, kWheel, kWheel), "");
  EXPECT_EQ(nccl_mismatch({2, 28, 3}, kWheel, {2, 30, 1}), "");
}

TEST(NcclVersions, NamesBothVersionsOfAMismatch) {
  testing::expect_facts(nccl_mismatch(kWheel, kWheel, {2, 28, 3}),
                        {"2.28.3", "2.28.9", "nvidia-nccl-cu13==2.28.9"});
  testing::expect_facts(nccl_mismatch(kWheel, kWheel, {3, 0, 0}), {"3.0.0", "2.28.9"});
  testing::expect_facts(nccl_mismatch({2, 27, 5}, kWheel, kWheel),
                        {"2.27.5", "2.28.9", "nvidia-nccl-cu13==2.28.9", "build rondo again"});
}

}  // namespace
}  // namespace rondo::nccl_versions_test
