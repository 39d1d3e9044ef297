#include "rondo/data/word_piece.h"

#include <gtest/gtest.h>

#include "rondo/base/error.h"
#include "rondo/base/random.h"
#include "rondo/base/text.h"
#include "rondo/data/unicode.h"
#include "tests/errors.h"
#include "tests/temporary_directory.h"

namespace rondo::word_piece_test {
namespace {

using testing::expect_facts;
using testing::message_of;

// tests/integration/bert_test.py compares many texts with `transformers`.

const std::vector<std::string> kVocabulary = {"[PAD]", "[UNK]", "[CLS]",  "[SEP]", "[MASK]",
                                              "un",    "##aff", "##able", "the",   "a",
                                              "##a",   "!",     "##b",    "cafe",  "\xE4\xBD\xA0"};

std::vector<std::string> pieces(const WordPiece& tokenizer, const std::string& text) {
  std::vector<std::string> result;
  for (const std::int64_t id : tokenizer.encode(text)) result.push_back(tokenizer.token(id));
  return result;
}

std::vector<std::string> words(const std::string& text, bool lower_case = true) {
  std::vector<std::string> result;
  for (const std::u32string& word : bert_words(text, lower_case)) {
    result.emplace_back();
    for (const char32_t c : word) unicode::append(result.back(), c);
  }
  return result;
}

using Words = std::vector<std::string>;

TEST(BertWords, AreCutAndNormalisedAsTheOriginalDoes) {
  EXPECT_EQ(words(" The\tcat,sat!! "), (Words{"the", "cat", ",", "sat", "!", "!"}));
  EXPECT_EQ(words("Caf\xC3\xA9 \xC3\x84RGER"), (Words{"cafe", "arger"}));
  EXPECT_EQ(words("Caf\xC3\xA9 A", false), (Words{"Caf\xC3\xA9", "A"}));
  EXPECT_EQ(words("e\xCC\x81t\xC3\xA9"), (Words{"ete"}));  // e and a combining accent
  EXPECT_EQ(words("ab\xE4\xBD\xA0\xE5\xA5\xBDz"),
            (Words{"ab", "\xE4\xBD\xA0", "\xE5\xA5\xBD", "z"}));  // ideographs
  EXPECT_EQ(words("a\x01\x7F\xE2\x80\x8B"
                  "b"),
            (Words{"ab"}));  // control characters
  EXPECT_EQ(words("a\xC2\xA0"
                  "b\xE3\x80\x80"
                  "c"),
            (Words{"a", "b", "c"}));  // spaces of other kinds
  EXPECT_EQ(words("\xC2\xBFque\xE2\x80\xA6"), (Words{"\xC2\xBF", "que", "\xE2\x80\xA6"}));
  EXPECT_EQ(words("a\xFF\xC3"
                  "b\xED\xA0\x80"),
            (Words{"ab"}));                                                           // invalid UTF-8
  EXPECT_EQ(words("\xEA\xB0\x81"), (Words{"\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8"}));  // Hangul is decomposed
  EXPECT_EQ(words(std::string("a\0b", 3)), (Words{"ab"}));
  EXPECT_TRUE(words("").empty());
  EXPECT_TRUE(words(" \n\t").empty());
}

TEST(BertWords, DependOnNothingAround) {
  // The words of two texts joined by a space are the words of both, for any bytes.
  RandomStream random(3);
  const auto text = [&] {
    std::string result;
    for (std::uint64_t i = random.below(20); i > 0; --i) {
      if (random.below(2) == 0) {
        unicode::append(result, static_cast<char32_t>(random.below(0x3000) + 0x20));
      } else {
        result.push_back(static_cast<char>(random.below(256)));
      }
    }
    return result;
  };
  for (int i = 0; i < 3000; ++i) {
    const std::string first = text(), second = text();
    Words expected = words(first);
    for (const std::string& word : words(second)) expected.push_back(word);
    EXPECT_EQ(words(first + " " + second), expected);
    // Normalising twice changes nothing.
    EXPECT_EQ(words(join(expected, " ")), expected);
  }
}

TEST(WordPiece, TakesTheLongestPieces) {
  const WordPiece tokenizer(kVocabulary, {});
  EXPECT_EQ(pieces(tokenizer, "Unaffable!"), (Words{"un", "##aff", "##able", "!"}));
  EXPECT_EQ(pieces(tokenizer, "aab the unx cafe"), (Words{"a", "##a", "##b", "the", "[UNK]", "cafe"}));
  EXPECT_EQ(pieces(tokenizer, "caf\xC3\xA9\xE4\xBD\xA0"), (Words{"cafe", "\xE4\xBD\xA0"}));
}

TEST(WordPiece, WordOverHundredCharactersIsUnknown) {
  const WordPiece tokenizer(kVocabulary, {});
  EXPECT_EQ(tokenizer.encode(std::string(100, 'a')).size(), 100U);
  EXPECT_EQ(pieces(tokenizer, std::string(101, 'a')), (Words{"[UNK]"}));
}

TEST(WordPiece, SpecialTokensInATextAreThemselves) {
  const WordPiece tokenizer(kVocabulary, {});
  EXPECT_EQ(pieces(tokenizer, "the[MASK]a [SEP][PAD]"), (Words{"the", "[MASK]", "a", "[SEP]", "[PAD]"}));
  EXPECT_EQ(pieces(tokenizer, "[mask]").front(), "[UNK]");
  EXPECT_TRUE(tokenizer.is_special(tokenizer.mask()));
  EXPECT_FALSE(tokenizer.is_special(8));
}

TEST(WordPiece, ReadsFileAndNamesItsErrors) {
  const TemporaryDirectory directory;
  const auto file = [&](const std::string& content) { return directory.write("vocab.txt", content); };
  const std::string specials = "[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\n[MASK]\r\n";
  EXPECT_EQ(WordPiece::from_file(file(specials + "the\r\n"), {}).encode("The"), std::vector<std::int64_t>{5});
  EXPECT_EQ(WordPiece::from_file(file(specials + "the"), {}).size(), 6);
  const auto message = [&](const std::string& content) {
    return message_of<DataError>([&] { WordPiece::from_file(file(content), {}); });
  };
  expect_facts(message(specials + "a\nb\na\n"), {"vocab.txt'", "line 8", "'a'", "line 6"});
  expect_facts(message(specials + "\na\n"), {"line 6", "empty"});
  expect_facts(message("[PAD]\n[UNK]\n"), {"[CLS]"});
  expect_facts(message(""), {"0 tokens"});

  const auto json = [&](const std::string& content) { return directory.write("tokenizer.json", content); };
  const std::string model =
      R"({"model": {"type": "WordPiece", "vocab": {"[UNK]": 1, "[PAD]": 0, "[CLS]": 2, "a": 5, )";
  EXPECT_EQ(WordPiece::from_file(json(model + R"("[SEP]": 3, "[MASK]": 4}}})"), {}).encode("a"),
            std::vector<std::int64_t>{5});
  for (const std::string& bad :
       {model + R"("[SEP]": 3, "[MASK]": 6}}})", std::string(R"({"model": {"type": "BPE", "vocab": {}}})"),
        std::string("[]"), std::string("{"), std::string(R"({"model": 3})")}) {
    EXPECT_THROW(WordPiece::from_file(json(bad), {}), DataError) << bad;
  }
  EXPECT_THROW(WordPiece::from_file("/nowhere/vocab.txt", {}), DataError);
}

TEST(BertSample, IsFilledUpOrCut) {
  const WordPiece tokenizer(kVocabulary, {});
  std::vector<std::int64_t> tokens(8), types(8), mask(8);
  const auto write = [&](std::size_t first, std::size_t second) {
    write_bert_sample(tokenizer, std::vector<std::int64_t>(first, 8), std::vector<std::int64_t>(second, 9), 8,
                      {tokens.data(), types.data(), mask.data()});
    return tokens;
  };
  using Row = std::vector<std::int64_t>;
  EXPECT_EQ(write(2, 0), (Row{2, 8, 8, 3, 0, 0, 0, 0}));
  EXPECT_EQ(mask, (Row{1, 1, 1, 1, 0, 0, 0, 0}));
  EXPECT_EQ(types, (Row(8, 0)));
  EXPECT_EQ(write(9, 0), (Row{2, 8, 8, 8, 8, 8, 8, 3}));
  EXPECT_EQ(write(2, 1), (Row{2, 8, 8, 3, 9, 3, 0, 0}));
  EXPECT_EQ(types, (Row{0, 0, 0, 0, 1, 1, 0, 0}));
  EXPECT_EQ(write(9, 1), (Row{2, 8, 8, 8, 8, 3, 9, 3}));
  EXPECT_EQ(write(1, 9), (Row{2, 8, 3, 9, 9, 9, 9, 3}));
  EXPECT_EQ(write(9, 9), (Row{2, 8, 8, 3, 9, 9, 9, 3}));
  EXPECT_EQ(write(0, 0), (Row{2, 3, 0, 0, 0, 0, 0, 0}));
}

}  // namespace
}  // namespace rondo::word_piece_test
