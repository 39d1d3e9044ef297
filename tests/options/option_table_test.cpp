#include "rondo/options/option_table.h"

#include <gtest/gtest.h>

#include "rondo/base/error.h"
#include "rondo/options/declaration.h"

namespace rondo::option_table_test {
namespace {

struct Shared {
  Bytes block = MiB(4);
};
struct Options : Shared {
  int depth = 2;
  double share = 0.25;
  bool eager = false;
  std::uint64_t seed = 0;
  std::optional<std::int64_t> width = {};
  std::string order = "fifo";
  std::vector<std::string> parts = {"a", "b"};
};

OptionsOf<Options> make_table() {
  OptionsOf<Shared> shared;
  shared.begin_group("Blocks");
  shared.add("segment-size", &Shared::block, "Bytes at a time");
  OptionsOf<Options> table;
  table.include(shared);
  table.add("depth", &Options::depth, "How deep", above_zero());
  table.add("share", &Options::share, "Which part", within(0, 1));
  table.add("eager", &Options::eager, "At once");
  table.add("seed", &Options::seed, "Of the draw", zero_or_more());
  table.add("width", &Options::width, "How wide", above_zero());
  table.add("order", &Options::order, "What goes first", one_of({"fifo", "lifo"}));
  table.add("parts", &Options::parts, "Which parts", one_of({"c", "b", "a"}));
  return table;
}

Options read(const OptionValues& values) {
  return *static_cast<const Options*>(make_table().read(values).get());
}

std::string refusal_of(const OptionValues& values) {
  try {
    read(values);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "nothing was refused";
}

void expect_facts(const std::string& text, const std::vector<std::string>& facts) {
  for (const std::string& fact : facts)
    EXPECT_NE(text.find(fact), std::string::npos) << fact << " in: " << text;
}

TEST(OptionTable, TextsFillTheStruct) {
  const Options options = read({{"segment-size", "64KiB"},
                                {"depth", "7"},
                                {"share", "0.5"},
                                {"eager", "true"},
                                {"seed", "18446744073709551615"},
                                {"width", "12"},
                                {"order", "lifo"},
                                {"parts", "c,a"}});
  EXPECT_EQ(options.block, KiB(64));
  EXPECT_EQ(options.depth, 7);
  EXPECT_EQ(options.share, 0.5);
  EXPECT_TRUE(options.eager);
  EXPECT_EQ(options.seed, UINT64_MAX);
  EXPECT_EQ(options.width, 12);
  EXPECT_EQ(options.order, "lifo");
  EXPECT_EQ(options.parts, (std::vector<std::string>{"c", "a"}));
  EXPECT_EQ(read({}).block, MiB(4));
}

TEST(OptionTable, DefaultsAreTheStructs) {
  const OptionsOf<Options> table = make_table();
  std::vector<std::string> defaults;
  for (const Option& option : table.options()) defaults.push_back(option.default_text.value_or("none"));
  EXPECT_EQ(defaults, (std::vector<std::string>{"4MiB", "2", "0.25", "false", "0", "none", "fifo", "a,b"}));
  EXPECT_EQ(table.find("order")->type, "{fifo,lifo}");
  EXPECT_EQ(table.find("segment-size")->group, "Blocks");
  EXPECT_EQ(table.find("speed"), nullptr);
}

TEST(OptionTable, InvalidValueNamesAllowedOnes) {
  expect_facts(refusal_of({{"depth", "0"}}), {"--depth", "0", "whole number above 0"});
  expect_facts(refusal_of({{"depth", "2.5"}}), {"--depth", "2.5", "whole number"});
  expect_facts(refusal_of({{"depth", "99999999999"}}), {"--depth", "99999999999", "whole number"});
  expect_facts(refusal_of({{"share", "nan"}}), {"--share", "nan", "from 0 to 1"});
  expect_facts(refusal_of({{"share", "1.5"}}), {"--share", "1.5", "from 0 to 1"});
  expect_facts(refusal_of({{"eager", "maybe"}}), {"--eager", "maybe", "true or false"});
  expect_facts(refusal_of({{"seed", "-1"}}), {"--seed", "-1", "0 or more"});
  expect_facts(refusal_of({{"order", "random"}}), {"--order", "random", "fifo", "lifo"});
  expect_facts(refusal_of({{"parts", "a,d"}}), {"--parts", "a,d", "a, b, c"});
  expect_facts(refusal_of({{"segment-size", "many"}}), {"--segment-size", "many"});
  expect_facts(refusal_of({{"speed", "1"}}), {"speed", "segment-size", "depth"});
}

TEST(OptionTable, DistinguishesGivenValuesFromDefaults) {
  const OptionsOf<Options> table = make_table();
  EXPECT_FALSE(table.differs_from_default(*table.find("segment-size"), "4096KiB"));
  EXPECT_TRUE(table.differs_from_default(*table.find("segment-size"), "1MiB"));
  EXPECT_FALSE(table.differs_from_default(*table.find("share"), "0.250"));
}

TEST(Declaration, OptionsOfOthersAreRefusedByName) {
  const OptionsOf<Options> all = make_table();
  const std::vector<Declaration> entries = {{"deep", "has depth", all.only({"depth", "share"}), {"well"}},
                                            {"wide", "has width", all.only({"width"})},
                                            {"flat", "has less", all.only({"share"})}};
  const Declaration& wide = *find_declaration(entries, "wide");
  EXPECT_EQ(find_declaration(entries, "well")->name, "deep");
  EXPECT_EQ(find_declaration(entries, "high"), nullptr);
  EXPECT_EQ(takers_of(entries, "share"), (std::vector<std::string>{"deep", "flat"}));
  // An unknown option, its own option, and another entry's option with its default value.
  refuse_options_of_others(entries, wide, "form", "wide", {{"speed", "1"}, {"width", "3"}, {"depth", "2"}});
  try {
    refuse_options_of_others(entries, wide, "form", "wide", {{"share", "0.5"}});
    FAIL();
  } catch (const UsageError& error) {
    expect_facts(error.what(), {"--share", "--form wide", "deep or flat"});
  }
}

}  // namespace
}  // namespace rondo::option_table_test
