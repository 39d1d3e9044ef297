#include "rondo/options/config_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/options/option_table.h"
#include "tests/temporary_directory.h"

namespace rondo {
namespace {

bool is_model_config(const std::string& name) { return name == "model-config"; }

std::vector<FileOption> toml(std::string_view text) {
  return parse_config(text, "run.toml", ConfigFormat::toml, is_model_config);
}
std::vector<FileOption> json(std::string_view text) {
  return parse_config(text, "run.json", ConfigFormat::json, is_model_config);
}

// Returns the message of the error that `read` throws; empty if there is none.
template <class Read>
std::string error_of(const Read& read) {
  try {
    read();
  } catch (const UsageError& error) {
    return error.what();
  }
  return {};
}

TEST(ConfigFile, ReadsEveryKindOfTomlValue) {
  const auto options = toml(
      "# a comment\n"
      "data = \"te\\u00e4xts/\\t\\\"x\\\"\" # behind a value\r\n"
      "path = 'C:\\no\\escapes'\n"
      "steps = 1_000\n"
      "seed = 9223372036854775807\n"
      "lr = -2.5e-3\n"
      "flip = true\n"
      "\"freeze\" = [\"embeddings\", # the first\n   'layer.0',\n]\n"
      "lr-schedule.kind = 'cosine'\n"
      "[checkpoint]\n"
      "every = 5\n"
      "keep_checkpoints = 2\n"
      "[model_config]\n"
      "layers = 2\n"
      "rope = { base = 1e4, scale = 2 }\n"
      "[ eval . batch ]\n"
      "size = 8");
  ASSERT_EQ(options.size(), 12U);
  EXPECT_EQ(options[0].value, "te\xC3\xA4xts/\t\"x\"");
  EXPECT_EQ(options[0].line, 2);
  EXPECT_EQ(options[1].value, "C:\\no\\escapes");
  EXPECT_EQ(options[2].value, 1000);
  EXPECT_EQ(options[3].value.get<std::int64_t>(), 9223372036854775807);
  EXPECT_EQ(options[4].value, -2.5e-3);
  EXPECT_EQ(options[5].value, true);
  EXPECT_EQ(options[6].value, nlohmann::json({"embeddings", "layer.0"}));
  EXPECT_EQ(options[7].name, "lr-schedule-kind");
  EXPECT_EQ(options[7].key, "lr-schedule.kind");
  EXPECT_EQ(options[8].name, "checkpoint-every");
  EXPECT_EQ(options[8].line, 13);
  EXPECT_EQ(options[9].name, "checkpoint-keep-checkpoints");
  EXPECT_EQ(options[10].name, "model-config");
  EXPECT_EQ(options[10].value,
            nlohmann::json::parse(R"({"layers": 2, "rope": {"base": 10000.0, "scale": 2}})"));
  EXPECT_EQ(options[11].name, "eval-batch-size");
}

TEST(ConfigFile, ReadsJsonWithTheLinesOfItsKeys) {
  const auto options = json(
      "{\n  \"batch_size\": 4,\n  \"lr\":\n   0.5, \"freeze\": [\"a\", \"b\"],\n"
      "  \"checkpoint\": {\"every\": 5},\n  \"memory_limit\": null,\n  \"model_config\": {\"a\": {\"b\": "
      "1}}\n}\n");
  ASSERT_EQ(options.size(), 6U);
  const std::vector<std::pair<std::string, int>> wanted = {{"batch-size", 2},   {"lr", 3},
                                                           {"freeze", 4},       {"checkpoint-every", 5},
                                                           {"memory-limit", 6}, {"model-config", 7}};
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(options[i].name, wanted[i].first);
    EXPECT_EQ(options[i].line, wanted[i].second) << options[i].name;
  }
  EXPECT_TRUE(options[4].value.is_null());
  EXPECT_EQ(options[5].value, nlohmann::json::parse(R"({"a": {"b": 1}})"));
}

TEST(ConfigFile, NamesBothLinesOfADuplicateOption) {
  const auto twice = [](const std::string& error, const char* line, const char* first) {
    EXPECT_NE(error.find(line), std::string::npos) << error;
    EXPECT_NE(error.find(str("line ", first)), std::string::npos) << error;
  };
  twice(error_of([] { toml("checkpoint_every = 1\n[checkpoint]\nevery = 2\n"); }), "run.toml:3:", "1");
  twice(error_of([] { json("{\"segment_size\": 1,\n\n\"segment-size\": 2}"); }), "run.json:3:", "1");
  twice(error_of([] { toml("model-config = 'file.json'\nmodel_config.layers = 2\n"); }), "run.toml:2:", "1");
  twice(error_of([] { toml("model-config.layers = 1\nmodel_config.layers = 2\n"); }), "run.toml:2:", "1");
  twice(error_of([] { json("{\"model_config\": {\"a\": {\"b\": 1},\n\"a\": 2}}"); }), "run.json:2:", "1");
}

TEST(ConfigFile, RefusesWhatIsNoTomlOfOptions) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"", "empty"},
      {" \n\t", "empty"},
      {"a = \"\xFF\"", "run.toml:1: the text is not UTF-8"},
      {"a", "end-of-file"},
      {"= 1", "key"},
      {"a = ", "value"},
      {"a = yes", "value type"},
      {"a = 01", "leading zeroes"},
      {"a = inf", "neither inf nor nan"},
      {"a = 1e999", "1e999"},
      {"a = 99999999999999999999", "64 bits"},
      {"a = 2026-11-27", "no option takes a date"},
      {"a = 1 b = 2", "comment or whitespace"},
      {"a = \"x", "end-of-file"},
      {"a = 'x\n'", "control"},
      {"a = \"\\q\"", "escape"},
      {"b = 1\na = \"\\ud800\"", "run.toml:2:"},
      {"a = \"\x01\"", "control"},
      {"a = [1, 2", "run.toml:1:"},
      {"a = [1 2]", "comma"},
      {"a = [{b = 1}]", "no tables"},
      {"a = {b = 1", "inline table"},
      {"[[a]]\nb = 1", "no tables"},
      {"[a]\nb = 1\n[a]\nc = 1", "run.toml:3:"},
      {"lr = 1\nsteps = 2\nlr = 3\n", "run.toml:3: Error while parsing key-value pair: cannot redefine"},
      {"[a\nb = 1", "']'"},
  };
  for (const auto& [text, wanted] : cases) {
    const std::string error = error_of([&] { toml(text); });
    EXPECT_NE(error.find(wanted), std::string::npos) << text << " gives: " << error;
    EXPECT_TRUE(error.starts_with("run.toml:")) << error;
  }
}

TEST(ConfigFile, RefusesWhatIsNoJsonObjectOfOptions) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"", "empty"},
      {"[]", "object of options"},
      {"3", "object of options"},
      {"{", "not valid JSON"},
      {"{} x", "JSON"},
      {"{\"a\": 1e999}", "JSON"},
      {"{\"a\": [{}]}", "no objects"},
      {"{'a': 1}", "not valid JSON"},
      {"{\n\"a\": tru}", "run.json:2: not valid JSON"}};
  for (const auto& [text, wanted] : cases) {
    const std::string error = error_of([&] { json(text); });
    EXPECT_NE(error.find(wanted), std::string::npos) << text << " gives: " << error;
  }
}

TEST(ConfigFile, LimitsDepth) {
  const std::string deep(100000, '[');
  const auto in_table = [&](std::string text) { return error_of([&] { toml(text); }); };
  EXPECT_NE(in_table("a = " + deep), "");
  EXPECT_NE(in_table("a = " + std::string(20, '[') + std::string(20, ']')).find("levels"), std::string::npos);
  std::string dots;
  for (int i = 0; i < 300000; ++i) dots += "a.";
  EXPECT_NE(in_table("\n" + dots + "a = 1").find("run.toml:2: more than"), std::string::npos);
  EXPECT_NE(in_table(dots.substr(0, 4000) + "a = 1").find("nested levels"), std::string::npos);
  EXPECT_NE(error_of([&] { json("{\"a\": " + deep); }).find("levels"), std::string::npos);
  std::string tables = "a = ", objects;
  for (int i = 0; i < 100000; ++i) {
    tables += "{a = ";
    objects += "{\"a\": ";
  }
  EXPECT_NE(in_table(tables), "");
  EXPECT_NE(error_of([&] { json(objects); }).find("nested levels"), std::string::npos);
}

TEST(ConfigFile, OptionsSayWhichTypeTheyTake) {
  Option number{.name = "lr", .help = "", .kind = OptionKind::number},
      whole{.name = "steps", .help = "", .kind = OptionKind::integer};
  Option toggle{.name = "flip", .help = "", .kind = OptionKind::toggle},
      list{.name = "freeze", .help = "", .kind = OptionKind::list};
  Option text{.name = "codec", .help = "", .kind = OptionKind::text},
      object{.name = "model-config", .help = "", .takes_object = true};
  EXPECT_EQ(option_text(number, 1e-5), "1e-05");
  EXPECT_EQ(option_text(number, 2), "2");
  EXPECT_EQ(option_text(whole, 2), "2");
  EXPECT_EQ(option_text(whole, "18446744073709551615"), "18446744073709551615");
  EXPECT_EQ(option_text(toggle, true), "true");
  EXPECT_EQ(option_text(list, nlohmann::json({"a", 2})), "a,2");
  EXPECT_EQ(option_text(list, "a,b"), "a,b");
  EXPECT_EQ(option_text(text, 128), "128");
  EXPECT_EQ(option_text(text, nullptr), "");
  EXPECT_EQ(option_text(object, nlohmann::json({{"layers", 2}})), R"({"layers":2})");
  const auto refused = [](const Option& option, const nlohmann::json& value, const char* wanted) {
    const std::string error = error_of([&] { option_text(option, value); });
    EXPECT_NE(error.find(wanted), std::string::npos) << option.name << " " << value << " gives: " << error;
  };
  refused(number, "1e-5", "expected a number, not a text");
  refused(number, true, "expected a number, not a boolean");
  refused(whole, 1.5, "expected a whole number");
  refused(whole, "3", "expected a number, not a text");
  refused(whole, "18446744073709551616", "expected a number, not a text");
  refused(toggle, 1, "expected true or false, not a number");
  refused(toggle, "true", "expected true or false, not a text");
  refused(text, nlohmann::json::array({"a"}), "expected one value, not a list");
  refused(text, nlohmann::json({{"a", 1}}), "expected a value, not a table");
  refused(list, nlohmann::json({"a,b"}), "comma");
  refused(list, nlohmann::json({{1}}), "a list of texts or numbers, not a list");
}

TEST(ConfigFile, NamesFilesThatCannotBeRead) {
  const TemporaryDirectory folder;
  const std::filesystem::path root = folder.path();
  const auto error = [&](const char* name) {
    return error_of([&] { read_config_file(root / name, is_model_config); });
  };
  std::ofstream(root / "a.yaml") << "a: 1";
  std::ofstream(root / "empty.toml");
  std::ofstream(root / "bytes.json") << "\xFF\xFE";
  std::ofstream(root / "large.toml") << std::string(2 << 20, '#');
  std::filesystem::create_directory(root / "folder.toml");
  EXPECT_NE(error("a.yaml").find(".toml or .json"), std::string::npos);
  EXPECT_NE(error("empty.toml").find("empty.toml: the file is empty"), std::string::npos);
  EXPECT_NE(error("bytes.json").find("not UTF-8"), std::string::npos);
  EXPECT_NE(error("none.toml").find("none.toml"), std::string::npos);
  EXPECT_NE(error("folder.toml").find("folder.toml"), std::string::npos);
  EXPECT_NE(error("large.toml").find("large.toml"), std::string::npos);
}

// Random damage: every text is read or refused, and reported lines exist in the text.
TEST(ConfigFile, SurvivesDamage) {
  const std::string texts[] = {
      "a = \"x\\u00e4\"\n[b]\nc = [1, 2.5, 'y']\nd = {e = true, f = -1e-3}\n# end\n[model_config]\nlayers = "
      "2\n",
      "{\"a\": \"x\\u00e4\", \"b\": {\"c\": [1, 2.5]},\n \"model_config\": {\"layers\": 2, \"d\": null}}\n"};
  std::mt19937 random(30);
  constexpr std::string_view bytes = "\"'[]{}=,.#\\\n\r\t -+eE_0179axu\xC3\xA4\xFF";
  for (int round = 0; round < 20000; ++round) {
    std::string text = texts[round % 2];
    for (int changes = 1 + static_cast<int>(random() % 4); changes > 0; --changes) {
      const std::size_t at = random() % text.size();
      const char byte = bytes[random() % bytes.size()];
      switch (random() % 4) {
        case 0:
          text[at] = byte;
          break;
        case 1:
          text.insert(at, 1, byte);
          break;
        case 2:
          text.erase(at, 1 + random() % 5);
          break;
        default:
          text.insert(at, text.substr(random() % text.size(), random() % 12));
          break;
      }
      if (text.empty()) text = "a";
    }
    const int lines = 1 + static_cast<int>(std::count(text.begin(), text.end(), '\n'));
    const std::string error = error_of([&] {
      for (const FileOption& option : round % 2 == 0 ? toml(text) : json(text)) {
        EXPECT_GE(option.line, 1);
        EXPECT_LE(option.line, lines) << text;
      }
    });
    if (error.empty() || error.find("empty") != std::string::npos) continue;
    const int line = std::atoi(error.substr(error.find(':') + 1).c_str());
    ASSERT_TRUE(line >= 1 && line <= lines) << error << "\n" << text;
  }
}

}  // namespace
}  // namespace rondo
