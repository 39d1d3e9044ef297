#include "rondo/base/json_strict.h"

#include <gtest/gtest.h>

#include <ctime>
#include <nlohmann/json.hpp>

#include "rondo/base/error.h"
#include "rondo/base/printable.h"
#include "rondo/base/text.h"

namespace rondo::json_strict_test {
namespace {

using Json = nlohmann::ordered_json;

std::string complaint_about(const std::string& text) {
  try {
    parse_json_strict(text, "run/file.json");
  } catch (const DataError& e) {
    return e.what();
  }
  return "";
}

std::string nested(int levels, const std::string& opening, const std::string& closing) {
  std::string text;
  for (int i = 0; i < levels; ++i) text += opening;
  text += "1";
  for (int i = 0; i < levels; ++i) text += closing;
  return text;
}

TEST(JsonStrict, GivesWhatTheTextSays) {
  const char* text =
      R"({"b": [1, -2, 2.5, true, null, "x\u00e4"], "a": {"c": {}, "d": []}, "e": 18446744073709551615})";
  const Json json = parse_json_strict(text, "text");
  EXPECT_EQ(json, Json::parse(text));
  EXPECT_EQ(json.dump(), Json::parse(text).dump());  // in the same order
  EXPECT_EQ(parse_json_strict(" 7 ", "text"), Json(7));
}

TEST(JsonStrict, HasALimitOnDepth) {
  for (const auto& [opening, closing] : {std::pair("[", "]"), std::pair("{\"a\":", "}")}) {
    EXPECT_EQ(complaint_about(nested(kDeepestJson, opening, closing)), "");
    for (const int levels : {kDeepestJson + 1, 60'000, 1'000'000}) {
      const std::string complaint = complaint_about(nested(levels, opening, closing));
      EXPECT_NE(complaint.find("run/file.json"), std::string::npos) << complaint;
      EXPECT_NE(complaint.find("64"), std::string::npos) << complaint;
    }
  }
}

TEST(JsonStrict, ComplainsInItsOwnWords) {
  for (const char* text : {"", "{", "{\"a\": 1e999}", "[1,]", "{\"a\": 1} x", "{\"a\": 1, \"a\": 2}",
                           "\"\xff\"", "{\"a\": \"\x1b[2J\"}"}) {
    const std::string complaint = complaint_about(text);
    EXPECT_TRUE(complaint.starts_with("run/file.json: ")) << complaint;
    EXPECT_EQ(complaint.find("json.exception"), std::string::npos) << complaint;
    EXPECT_EQ(complaint.find('\x1b'), std::string::npos) << complaint;
  }
  EXPECT_LT(complaint_about("{\"" + std::string(1'000'000, 'a') + "\": 1,").size(), 1000U);
}

TEST(JsonStrict, IsLinearInTheNumberOfKeys) {
  // Measures processor time, which other load does not affect.
  const auto seconds_for = [](int keys) {
    std::string text = "{";
    for (int i = 0; i < keys; ++i) text += str(i == 0 ? "" : ",", "\"layer.", i, ".weight\":1");
    const std::clock_t begin = std::clock();
    EXPECT_EQ(parse_json_strict(text + "}", "text").size(), static_cast<std::size_t>(keys));
    return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  };
  seconds_for(1000);
  // With quadratic cost, 200,000 keys would take 400 times as long as 10,000, which is minutes.
  EXPECT_LT(seconds_for(200'000), 100 * seconds_for(10'000) + 1);
}

TEST(JsonInteger, TakesWholeNumbersInTheirRange) {
  EXPECT_EQ(json_integer(Json(7), "step"), 7);
  EXPECT_EQ(json_integer(Json(2.0), "step"), 2);
  EXPECT_EQ(json_integer(Json(INT64_MIN), "step"), INT64_MIN);
  for (const char* text : {"-9223372036854775808", "-1", "1.5", "1e308", "-1e308", "18446744073709551615",
                           "\"7\"", "null", "[]"}) {
    try {
      json_integer(Json::parse(text), "manifest.json: step", 0);
      FAIL() << text;
    } catch (const DataError& e) {
      EXPECT_TRUE(std::string(e.what()).starts_with("manifest.json: step: ")) << e.what();
    }
  }
}

TEST(JsonValues, WrongTypesAndRangesNameTheirPlace) {
  const Json object = Json::parse(R"({"number":1.5,"text":"a","flag":true,"list":[1],"nothing":null})");
  const std::string where = "run/file.json: entry 3";
  EXPECT_EQ(json_number(json_member(object, "number", where), where, 0, 2), 1.5);
  EXPECT_EQ(json_text(json_member(object, "text", where), where), "a");
  EXPECT_TRUE(json_boolean(json_member(object, "flag", where), where));
  EXPECT_EQ(json_list(json_member(object, "list", where), where).size(), 1U);
  EXPECT_EQ(&json_object(object, where), &object);
  EXPECT_EQ(json_place(where, "lr"), "run/file.json: entry 3: \"lr\"");
  const auto refused = [&](const auto& read) {
    try {
      read();
      ADD_FAILURE() << "nothing was said";
    } catch (const DataError& e) {
      EXPECT_TRUE(std::string(e.what()).starts_with(where)) << e.what();
    }
  };
  const Json& number = object["number"];
  refused([&] { json_number(number, where, 2); });
  refused([&] { json_number(number, where, 0, 1); });
  refused([&] { json_number(object["text"], where); });
  refused([&] { json_number(object["nothing"], where); });
  refused([&] { json_text(number, where); });
  refused([&] { json_boolean(number, where); });
  refused([&] { json_list(object, where); });
  refused([&] { json_object(object["list"], where); });
  refused([&] { json_member(object, "gone", where); });
  refused([&] { json_member(number, "lr", where); });
}

TEST(Printable, LetsNothingReachTheTerminal) {
  EXPECT_EQ(printable("layer.0 \xc3\xa4\n"), "layer.0 \xc3\xa4\n");
  EXPECT_EQ(printable("a\x1b[2J\r\x7f"), "a\\x1b[2J\\x0d\\x7f");
  EXPECT_TRUE(is_utf8("layer.0 \xc3\xa4\n"));
  // Truncated, overlong, a surrogate, above U+10FFFF: none of them is allowed in JSON.
  for (const char* text : {"a\xc3", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80"})
    EXPECT_FALSE(is_utf8(text)) << printable(text);
  EXPECT_EQ(printable("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(printable("\xc2\x9b"), "\\xc2\\x9b");  // U+009B, which some terminals interpret as ESC [
  const std::string cut = printable(std::string(10'000, 'a') + "the end", 120);
  EXPECT_LT(cut.size(), 200U);
  EXPECT_TRUE(cut.ends_with("the end"));
  std::string accents;
  for (int i = 0; i < 1000; ++i) accents += "\xc3\xa4";
  EXPECT_EQ(printable(accents, 121).find("\\x"), std::string::npos);  // no character is cut in two
}

TEST(PlainMessage, LeavesOutLibtorchSourceLocations) {
  unsetenv("TORCH_SHOW_CPP_STACKTRACES");
  const Error sizes(
      "rank 1: the sizes do not fit\nException raised from operator() at /build/Sizes.h:295 (most recent "
      "call first):\n"
      "frame #0: c10::Error::Error() + 0x9d (0x7f in libc10.so)\nframe #1: <unknown function>\n\n");
  EXPECT_EQ(plain_message(sizes), "rank 1: the sizes do not fit");
  const Error memory(
      "rank 1: [enforce fail at alloc_cpu.cpp:127] err == 0. No memory for 16 bytes. Error code 12\n"
      "frame #0: c10::alloc_cpu(unsigned long) + 0x3a4\n");
  EXPECT_EQ(plain_message(memory), "rank 1: No memory for 16 bytes. Error code 12");
  EXPECT_EQ(plain_message(Error("two\nlines")), "two\nlines");
  const std::filesystem::filesystem_error links(
      "status", "a/b", std::make_error_code(std::errc::too_many_symbolic_link_levels));
  EXPECT_EQ(plain_message(links), "a/b: Too many levels of symbolic links");
  setenv("TORCH_SHOW_CPP_STACKTRACES", "1", 1);
  EXPECT_EQ(plain_message(sizes), sizes.what());
  unsetenv("TORCH_SHOW_CPP_STACKTRACES");
}

}  // namespace
}  // namespace rondo::json_strict_test
