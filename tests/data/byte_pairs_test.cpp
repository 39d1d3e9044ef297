#include "rondo/data/byte_pairs.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "rondo/base/error.h"
#include "rondo/data/unicode.h"
#include "tests/errors.h"
#include "tests/temporary_directory.h"

namespace rondo::byte_pairs_test {
namespace {

using nlohmann::json;
using testing::expect_facts;
using testing::message_of;

json reference() {
  std::ifstream file(RONDO_SOURCE_DIR "/tests/data/byte_pairs_reference.json");
  return json::parse(file);
}

// Compares with the tokens of the `tokenizers` package for the same tokenizer.json
// (make_byte_pairs_reference.py).
TEST(BytePairs, GiveTheTokensOfTheReference) {
  const json all = reference();
  TemporaryDirectory directory;
  ASSERT_EQ(all.at("tokenizers").size(), 4U);
  for (const auto& [name, entry] : all.at("tokenizers").items()) {
    const BytePairs pairs = BytePairs::from_file(directory.write(name + ".json", entry.at("file").dump()));
    EXPECT_GE(pairs.size(), 600) << name;
    for (std::size_t i = 0; i < all.at("texts").size(); ++i) {
      const auto text = all.at("texts")[i].get<std::string>();
      const auto expected = entry.at("tokens")[i].get<std::vector<std::int32_t>>();
      EXPECT_EQ(pairs.encode(text), expected) << name << ": " << all.at("texts")[i].dump();
      if (name == "llama2") continue;
      EXPECT_EQ(pairs.decode(expected), name == "qwen2" ? unicode::normalized_nfc(text) : text) << name;
    }
    EXPECT_EQ(pairs.decode(pairs.encode("two words")), "two words") << name;
    EXPECT_THROW(pairs.decode({-1}), UsageError);
  }
}

TEST(Normalization, ComposesMarksAndKeepsOtherBytes) {
  using unicode::normalized_nfc;
  EXPECT_EQ(normalized_nfc("plain \xC3\xA9"), "plain \xC3\xA9");
  EXPECT_EQ(normalized_nfc("e\xCC\x81"), "\xC3\xA9");
  EXPECT_EQ(normalized_nfc("e\xCC\x82\xCC\xA3"), "\xE1\xBB\x87") << "the dot below comes first";
  EXPECT_EQ(normalized_nfc("\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8"), "\xEA\xB0\x81")
      << "a syllable of three letters";
  EXPECT_EQ(normalized_nfc("\xE0\xA5\x98"), "\xE0\xA4\x95\xE0\xA4\xBC") << "excluded from composition";
  EXPECT_EQ(normalized_nfc("\xCC\x81"
                           "e\xFF\xCC\x81\xED\xA0\x80"),
            "\xCC\x81"
            "e\xFF\xCC\x81\xED\xA0\x80")
      << "a byte that is no UTF-8 stands between e and its mark";
}

TEST(BytePairs, SayWhatCannotBe) {
  const json good = reference().at("tokenizers").at("gpt2").at("file");
  TemporaryDirectory directory;
  const auto failure = [&](const json& document) {
    return message_of<DataError>(
        [&] { BytePairs::from_file(directory.write("tokenizer.json", document.dump())); });
  };
  const auto changed = [&](const char* pointer, const json& value) {
    json document = good;
    document[json::json_pointer(pointer)] = value;
    return failure(document);
  };
  expect_facts(failure(json::object()), {"tokenizer.json", "'model'"});
  expect_facts(changed("/model/type", "WordPiece"), {"tokenizer.json", "WordPiece", "BPE"});
  expect_facts(changed("/normalizer", {{"type", "NFKC"}}), {"normalizer", "NFKC", "NFC"});
  expect_facts(changed("/pre_tokenizer", {{"type", "Whitespace"}}),
               {"pre_tokenizer", "Whitespace", "ByteLevel"});
  expect_facts(changed("/model/merges", json::array({"a nothing"})), {"merges[0]", "nothing"});
  expect_facts(changed("/model/vocab", json{{"a", 1}}), {"lacks byte 0"});
  expect_facts(changed("/model/vocab/a", -3), {"'a'", "-3"});
  expect_facts(changed("/model/vocab/a", "one"), {"'a'", "one"});
}

}  // namespace
}  // namespace rondo::byte_pairs_test
