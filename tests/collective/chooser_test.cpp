#include "rondo/collective/chooser/chooser.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "tests/errors.h"

namespace rondo::collective::chooser_test {
namespace {

Tuning two_sizes() {
  return {"a machine",
          {{OperationKind::all_reduce, 4, 1 << 20, {{kEngine, 100}, {"ring", 80}}},
           {OperationKind::all_reduce, 4, 1 << 10, {{kEngine, 1}, {"ring", 20}}}}};
}

TEST(Chooser, PicksTheFastestAtAndBetweenMeasuredSizes) {
  const Chooser chooser(two_sizes(), {});
  EXPECT_FALSE(chooser.only_engine());
  EXPECT_EQ(chooser.choose(OperationKind::all_reduce, 4, 1 << 10).algorithm, kEngine);
  EXPECT_EQ(chooser.choose(OperationKind::all_reduce, 4, 1 << 20).algorithm, "ring");
  // 100^x against 20 * 4^x, x being the position between the sizes: they cross at x = 0.93.
  EXPECT_EQ(chooser.choose(OperationKind::all_reduce, 4, 1 << 19).algorithm, kEngine);
  EXPECT_EQ(chooser.choose(OperationKind::all_reduce, 4, 1000 * 1000).algorithm, "ring");
  // Beyond the measured sizes the nearest one applies.
  EXPECT_EQ(chooser.choose(OperationKind::all_reduce, 4, 4).algorithm, kEngine);
  EXPECT_EQ(chooser.choose(OperationKind::all_reduce, 4, 1 << 30).algorithm, "ring");
  const Choice choice = chooser.choose(OperationKind::all_reduce, 4, 1 << 20);
  testing::expect_facts(choice.reason, {"all_reduce", "1.0 MiB", "4 ranks", "ring 80 us", "engine 100 us"});
}

TEST(Chooser, TakesTheEngineWhereNothingWasMeasured) {
  const Chooser chooser(two_sizes(), {});
  for (const auto& [operation, ranks] :
       {std::pair{OperationKind::broadcast, 4}, {OperationKind::all_reduce, 2}}) {
    const Choice choice = chooser.choose(operation, ranks, 1 << 20);
    EXPECT_EQ(choice.algorithm, kEngine);
    EXPECT_NE(choice.reason.find("--tune"), std::string::npos);
  }
  EXPECT_TRUE(Chooser().only_engine());
}

TEST(Chooser, AHandSetChoiceWins) {
  const Chooser one(two_sizes(), parse_hand_set("all_reduce=naive", "X"));
  EXPECT_EQ(one.choose(OperationKind::all_reduce, 4, 1 << 20).algorithm, "naive");
  EXPECT_EQ(one.choose(OperationKind::all_reduce, 4, 1 << 20).reason, "set by hand");
  EXPECT_EQ(one.choose(OperationKind::broadcast, 4, 1 << 20).algorithm, kEngine);
  const Chooser all({}, parse_hand_set("ring,broadcast=engine", "X"));
  EXPECT_EQ(all.choose(OperationKind::reduce, 3, 8).algorithm, "ring");
  EXPECT_EQ(all.choose(OperationKind::broadcast, 3, 8).algorithm, kEngine);
  for (const char* wrong : {"rign", "all_reduce=rign", "all_redoce=ring", "all_gather=double_binary_tree"}) {
    try {
      parse_hand_set(wrong, "RONDO_ALGORITHM");
      ADD_FAILURE() << wrong;
    } catch (const UsageError& e) {
      EXPECT_NE(std::string(e.what()).find("RONDO_ALGORITHM"), std::string::npos) << e.what();
    }
  }
}

TEST(Tuning, GoesThroughAFile) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / str("tuning_test.", getpid());
  const std::filesystem::path path = folder / "below" / "collectives.json";
  EXPECT_TRUE(read_tuning(path).cells.empty());
  write_tuning(path, two_sizes());
  const Tuning back = read_tuning(path);
  EXPECT_EQ(format_tuning(back), format_tuning(two_sizes()));
  for (const char* text :
       {"", "{}", R"({"format": "rondo-tuning-1", "machine": "m", "cells": [{"operation": "x"}]})",
        R"({"format": "rondo-tuning-9", "machine": "m", "cells": []})"}) {
    std::ofstream(path) << text;
    try {
      read_tuning(path);
      ADD_FAILURE() << text;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(path.string()), std::string::npos) << e.what();
    }
  }
  EXPECT_THROW(write_tuning("/proc/nowhere/file", {}), Error);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace rondo::collective::chooser_test
