#include "rondo/backend/engine/engine_text.h"

#include <gtest/gtest.h>

#include <memory>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "rondo/backend/engine_factories.h"
#include "rondo/backend/registry.h"
#include "rondo/base/error.h"

namespace rondo::engine_text_test {
namespace {

struct PacedOptions {
  int pace = 3;
  std::vector<std::string> words = {};
  std::string inner = "native";
};

Declaration paced() {
  OptionsOf<PacedOptions> table;
  table.add("how-paced", &PacedOptions::pace, "How fast", within(1, 9));
  table.add("loud-words", &PacedOptions::words, "What is said");
  table.add("quiet-engine", &PacedOptions::inner, "Another engine", {.type = kEngineOption});
  return {.name = "paced", .summary = "an engine of this program", .options = table};
}

OptionValues options_of(const std::string& text) { return options_in_brackets(split_engine(text), paced()); }

std::string refusal(const std::string& text) {
  std::vector<Declaration> engines = declared_engines();
  engines.push_back(paced());
  try {
    check_engine(text, "--backend", engines);
    return {};
  } catch (const UsageError& error) {
    return error.what();
  }
}

TEST(EngineText, AutoIsAnEngineThatIsThere) {
  for (const bool one_host : {true, false}) EXPECT_EQ(refusal(engine_of_auto(one_host)), "");
  EXPECT_NE(engine_of_auto(true), engine_of_auto(false));
}

TEST(EngineText, OptionsStandInBrackets) {
  for (const char* const text : {"paced", "paced()", " paced ( )"})
    EXPECT_EQ(options_of(text), OptionValues());
  const OptionValues four{{"how-paced", "4"}};
  for (const char* const text :
       {"paced(4)", "paced(paced=4)", "paced(how_paced = 4)", "paced( how-paced=4 )"})
    EXPECT_EQ(options_of(text), four) << text;
  EXPECT_EQ(
      options_of("paced(words=a, 4, quiet_engine=paced(pace=2, x(y, z)))"),
      (OptionValues{{"how-paced", "4"}, {"loud-words", "a"}, {"quiet-engine", "paced(pace=2, x(y, z))"}}));
}

TEST(EngineText, WhatIsWrittenIsReadTheSame) {
  EXPECT_EQ(engine_with_options("paced", {}), "paced");
  const OptionValues all{
      {"how-paced", "2"}, {"loud-words", "a,b"}, {"quiet-engine", "paced(paced=2, words=c)"}};
  EXPECT_EQ(options_of(engine_with_options("paced", all)), all);
}

TEST(EngineText, WhatCannotBeIsNamed) {
  for (const char* const text : {"auto", "paced", "gloo()", "paced(2, quiet_engine=paced(3))", "hierarchical",
                                 "hierarchical(native, paced(2), window=1)", "./some.so:name(what=ever)"})
    EXPECT_EQ(refusal(text), "") << text;
  for (const auto& [text, parts] : std::vector<std::pair<std::string, std::vector<std::string>>>{
           {"pigeon", {"pigeon", "gloo", "paced"}},
           {"gloo(codec=int8)", {"gloo", "codec=int8", "no options"}},
           {"native(x)", {"native", "'x'", "no options"}},
           {"hierarchical(native, nccl)", {"nccl", "gloo or mpi", "--backend nccl"}},
           {"paced(10)", {"--how-paced 10", "from 1 to 9"}},
           {"paced(pase=1)", {"pase=1", "how-paced, loud-words, quiet-engine"}},
           {"paced(1, paced=2)", {"paced=2", "--how-paced", "1"}},
           {"paced(1, a, native, more)", {"'more'"}},
           {"paced(1", {"bracket"}},
           {"paced(1))", {"bracket"}},
           {"paced((1)", {"bracket"}},
           {"paced(quiet_engine=pigeon)", {"--quiet-engine", "pigeon", "gloo"}},
           {"hierarchical(native, paced(0))", {"inter-host-engine", "--how-paced 0"}},
           {"hierarchical(native, gloo, windw=3)", {"windw=3", "inter-host-window"}},
           {"hierarchical(native, gloo, codec=int9)", {"inter-host-codec", "int9", "int8"}}}) {
    const std::string said = refusal(text);
    EXPECT_TRUE(said.starts_with("--backend " + text)) << said;
    for (const std::string& part : parts)
      EXPECT_NE(said.find(part), std::string::npos) << part << ": " << said;
  }
}

// A program's own engine gets the options that were given.
TEST(EngineText, AProgramsEngineGetsItsOptions) {
  const auto got = std::make_shared<PacedOptions>();
  register_backend<PacedOptions>(paced(), [got](const BackendRequest& request, const PacedOptions& options) {
    *got = options;
    return request.make(options.inner, request).backend;
  });
  BackendRequest alone;
  alone.world_ranks = {0};
  alone.store = c10::make_intrusive<c10d::HashStore>();
  make_backend("paced(words=(a,b), paced=7)", alone);
  EXPECT_EQ(got->pace, 7);
  EXPECT_EQ(got->words, (std::vector<std::string>{"a", "b"}));
  make_backend("paced", alone);
  EXPECT_EQ(got->pace, 3);
  EXPECT_THROW(make_backend("paced(paced=0)", alone), UsageError);
  EXPECT_THROW(make_backend("gloo(codec=int8)", alone), UsageError);
  const auto of_another = [](const BackendRequest& request, const NoOptions&) {
    return request.make("native", request).backend;
  };
  EXPECT_THROW(register_backend<NoOptions>(paced(), of_another), Error);
  register_backend("plain", [](const BackendRequest& request) { return make_backend("native", request); });
  EXPECT_THROW(make_backend("plain(x)", alone), UsageError);
}

}  // namespace
}  // namespace rondo::engine_text_test
