#include "rondo/format/run_directory.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "rondo/base/error.h"
#include "rondo/base/version.h"
#include "tests/temporary_directory.h"

namespace rondo::run_file_test {
namespace {

RunStart start_at(std::int64_t step, const std::string& strategy) {
  const std::vector<std::string> arguments = {"--data", "two words", "--lr", "1e-3"};
  return {.made = make_provenance("rondo train", arguments),
          .strategy = strategy,
          .backend = "native",
          .ranks = 2,
          .first_step = step};
}

TEST(Provenance, SaysWhatWasRunWhenAndWhere) {
  const Provenance made = start_at(0, "ddp").made;
  EXPECT_EQ(made.command, "rondo train --data 'two words' --lr 1e-3");
  EXPECT_EQ(made.version, kVersion);
  EXPECT_FALSE(made.host.empty());
  ASSERT_EQ(made.time.size(), 20U);
  EXPECT_EQ(made.time[10], 'T');
  EXPECT_EQ(made.time.back(), 'Z');
}

TEST(Provenance, WordsAreQuotedForAShell) {
  const std::vector<std::string> words = {"a", "", "it's", "$HOME", "x=1,2"};
  EXPECT_EQ(shell_text(words), "a '' 'it'\\''s' '$HOME' x=1,2");
}

TEST(Provenance, KnowsTheOwnCommandLine) {
  EXPECT_NE(own_command().find("format_test"), std::string::npos) << own_command();
}

TEST(RunFile, EachStartIsKeptBehindThoseBefore) {
  const TemporaryDirectory directory;
  add_run_start(directory / "run.json", start_at(0, "ddp"));
  add_run_start(directory / "run.json", start_at(7, "zero3"));
  const std::vector<RunStart> starts = read_run_starts(directory / "run.json");
  ASSERT_EQ(starts.size(), 2U);
  EXPECT_EQ(starts[0].strategy, "ddp");
  EXPECT_EQ(starts[1].strategy, "zero3");
  EXPECT_EQ(starts[1].first_step, 7);
  EXPECT_EQ(starts[1].ranks, 2);
  EXPECT_EQ(starts[1].made.command, start_at(7, "").made.command);
}

TEST(RunFile, KeepsOriginAndChangedOptions) {
  const TemporaryDirectory directory;
  RunStart start = start_at(0, "ddp");
  EXPECT_FALSE(to_json(start).contains("changed_options")) << "unknown members are missing";
  start.git_commit = std::string(40, 'a');
  start.machine = "a processor";
  start.parameters = 12;
  start.changed_options = {"lr", "model"};
  add_run_start(directory / "run.json", start);
  start.changed_options.emplace();
  start.first_step = 3;
  add_run_start(directory / "run.json", start);
  const std::vector<RunStart> starts = read_run_starts(directory / "run.json");
  ASSERT_EQ(starts.size(), 2U);
  EXPECT_EQ(starts[0].git_commit, start.git_commit);
  EXPECT_EQ(starts[0].machine, "a processor");
  EXPECT_EQ(starts[0].parameters, 12);
  EXPECT_EQ(starts[0].changed_options, (std::vector<std::string>{"lr", "model"}));
  ASSERT_TRUE(starts[1].changed_options.has_value());
  EXPECT_TRUE(starts[1].changed_options->empty());
}

TEST(RunFile, NewTrainingClearsEarlierStarts) {
  const TemporaryDirectory directory;
  add_run_start(directory / "run.json", start_at(0, "ddp"));
  add_run_start(directory / "run.json", start_at(9, "ddp"));
  add_run_start(directory / "run.json", start_at(5, "zero1"));
  EXPECT_EQ(read_run_starts(directory / "run.json").size(), 2U) << "what began at step 9 is done again";
  add_run_start(directory / "run.json", start_at(0, "zero2"));
  EXPECT_EQ(read_run_starts(directory / "run.json").size(), 1U);
}

TEST(RunFile, LabelsAreChangedOneByOne) {
  const TemporaryDirectory directory;
  const auto file = directory / "run.json";
  change_run_labels(file, {.name = "wide", .tags = std::vector<std::string>{"gpt", "two words"}});
  EXPECT_TRUE(read_run_starts(file).empty());
  change_run_labels(file, {.notes = "first\nsecond"});
  RunLabels labels = read_run_labels(file);
  EXPECT_EQ(labels.name, "wide");
  EXPECT_EQ(labels.tags, (std::vector<std::string>{"gpt", "two words"}));
  EXPECT_EQ(labels.notes, "first\nsecond");
  change_run_labels(file, {.name = "", .tags = std::vector<std::string>()});
  labels = read_run_labels(file);
  EXPECT_FALSE(labels.name);
  EXPECT_FALSE(labels.tags);
  EXPECT_EQ(labels.notes, "first\nsecond");
}

TEST(RunFile, ResumedRunsKeepTheirLabels) {
  const TemporaryDirectory directory;
  const auto file = directory / "run.json";
  add_run_start(file, start_at(0, "ddp"), {.name = "wide", .notes = "note"});
  add_run_start(file, start_at(7, "ddp"), {.name = "wider"});
  EXPECT_EQ(read_run_labels(file).name, "wider");
  EXPECT_EQ(read_run_labels(file).notes, "note");
  EXPECT_EQ(read_run_starts(file).size(), 2U);
  add_run_start(file, start_at(0, "ddp"));
  EXPECT_FALSE(read_run_labels(file).name) << "a new training has no labels of the one before";
}

TEST(RunFile, DamagedLabelsAreNamedAndKept) {
  const TemporaryDirectory directory;
  const auto file = directory / "run.json";
  for (const char* damaged :
       {R"({"starts":[],"name":3})", R"({"starts":[],"tags":"a"})", R"({"starts":[],"tags":[1]})", "{"}) {
    write_all(file, damaged);
    EXPECT_THROW(read_run_labels(file), DataError) << damaged;
    EXPECT_THROW(change_run_labels(file, {.name = "x"}), DataError) << damaged;
    EXPECT_EQ(read_all(file), damaged);
  }
}

TEST(RunFile, DamageIsNamedAndTrainingContinues) {
  const TemporaryDirectory directory;
  for (const char* damaged : {"{", "[]", R"({"starts":[{"program":3}]})", R"({"starts":7})"}) {
    write_all(directory / "run.json", damaged);
    try {
      read_run_starts(directory / "run.json");
      ADD_FAILURE() << damaged;
    } catch (const DataError& error) {
      EXPECT_NE(std::string(error.what()).find("run.json"), std::string::npos) << error.what();
    }
  }
  add_run_start(directory / "run.json", start_at(4, "ddp"));
  EXPECT_EQ(read_run_starts(directory / "run.json").size(), 1U);
}

TEST(RunFile, InvalidValuesNameTheirPlace) {
  const TemporaryDirectory directory;
  const auto refused = [&](const char* key, const char* value) {
    nlohmann::json start = to_json(start_at(0, "ddp"));
    start["total_steps"] = 9;
    start[key] = nlohmann::json::parse(value);
    write_all(directory / "run.json", nlohmann::json{{"starts", {start}}}.dump());
    try {
      read_run_starts(directory / "run.json");
      ADD_FAILURE() << key << " " << value;
    } catch (const DataError& error) {
      const std::string said = error.what();
      for (const std::string& fact : {std::string("run.json"), std::string("start 0"), std::string(key)})
        EXPECT_NE(said.find(fact), std::string::npos) << said;
      EXPECT_EQ(said.find("json.exception"), std::string::npos) << said;
    }
  };
  for (const char* value : {"1e308", "-1e308", "-1", "1.5", "\"2\"", "null", "9223372036854775807"}) {
    for (const char* key : {"ranks", "first_step", "total_steps"}) refused(key, value);
  }
  refused("ranks", "0");
  for (const char* key : {"program", "version", "time", "host", "command", "strategy", "backend"})
    refused(key, "3");
}

}  // namespace
}  // namespace rondo::run_file_test
