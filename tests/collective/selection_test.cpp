#include "rondo/collective/algorithms/selection.h"

#include <gtest/gtest.h>

#include <string>

#include "rondo/base/error.h"

namespace rondo::collective::selection_test {
namespace {

TEST(AlgorithmSelection, IsByOperationOrForAll) {
  const AlgorithmSelection one("all_reduce=naive", "X");
  EXPECT_EQ(one.of(OperationKind::all_reduce), "naive");
  EXPECT_EQ(one.of(OperationKind::broadcast), kEngine);
  EXPECT_FALSE(one.only_engine());
  const AlgorithmSelection all("ring,broadcast=engine", "X");
  EXPECT_EQ(all.of(OperationKind::reduce), "ring");
  EXPECT_EQ(all.of(OperationKind::broadcast), kEngine);
}

TEST(AlgorithmSelection, TheEngineIsTheDefault) {
  EXPECT_TRUE(AlgorithmSelection().only_engine());
  EXPECT_TRUE(AlgorithmSelection("engine", "X").only_engine());
  EXPECT_EQ(AlgorithmSelection().of(OperationKind::all_reduce), kEngine);
}

TEST(AlgorithmSelection, RefusesUnknownNamesAndOperations) {
  for (const char* wrong : {"rign", "all_reduce=rign", "all_redoce=ring", "all_gather=double_binary_tree"}) {
    try {
      const AlgorithmSelection selection(wrong, "RONDO_ALGORITHM");
      ADD_FAILURE() << wrong;
    } catch (const UsageError& e) {
      EXPECT_NE(std::string(e.what()).find("RONDO_ALGORITHM"), std::string::npos) << e.what();
    }
  }
}

}  // namespace
}  // namespace rondo::collective::selection_test
