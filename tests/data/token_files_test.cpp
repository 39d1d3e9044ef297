#include "rondo/data/tokens.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <numeric>

#include "rondo/base/error.h"
#include "rondo/base/random.h"
#include "tests/errors.h"
#include "tests/temporary_directory.h"

namespace rondo::token_files_test {
namespace {

using testing::expect_facts;
using testing::message_of;

template <class Token>
std::string stored(const std::vector<std::int64_t>& tokens) {
  std::string bytes;
  for (const std::int64_t token : tokens) {
    const auto narrow = static_cast<Token>(token);
    bytes.append(reinterpret_cast<const char*>(&narrow), sizeof narrow);
  }
  return bytes;
}

std::vector<std::int64_t> counted(std::int64_t size, std::int64_t first = 0) {
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(size));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

std::vector<std::int64_t> values(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  return {flat.const_data_ptr<std::int64_t>(), flat.const_data_ptr<std::int64_t>() + flat.numel()};
}

DataOptions options_of(std::int64_t context, double fraction = 0, std::int64_t vocabulary = 1000) {
  DataOptions options{.validation_fraction = fraction, .context = context};
  options.of_kind.edit<TokenOptions>().vocabulary = vocabulary;
  return options;
}

TEST(TokenFiles, WindowsOfBothTypesCrossFileEnds) {
  for (const bool wide : {false, true}) {
    const TemporaryDirectory directory;
    const auto write = [&](const char* name, const std::vector<std::int64_t>& tokens) {
      directory.write(name, wide ? stored<std::uint32_t>(tokens) : stored<std::uint16_t>(tokens));
    };
    const std::int64_t base = wide ? 70'000 : 0;
    write("part0.bin", counted(7, base));
    write("part1.bin", {});
    write("part2.bin", counted(2, base + 7));
    write("part3.bin", counted(12, base + 9));
    DataOptions options = options_of(5, 0, base + 100);
    if (wide) options.of_kind.edit<TokenOptions>().type = "uint32";
    const OpenedData data = open_data("tokens", directory.path(), options);
    EXPECT_EQ(data.kind, "tokens");
    EXPECT_EQ(data.validation, nullptr);
    ASSERT_EQ(data.train->size(), 4);
    const Batch batch = data.train->get(std::vector<std::int64_t>{3, 1});
    EXPECT_EQ(values(batch.input()[0]), counted(5, base + 15));
    EXPECT_EQ(values(batch.target()[0]), counted(5, base + 16));
    EXPECT_EQ(values(batch.input()[1]), counted(5, base + 5));
    EXPECT_EQ(data.train->info().unit, "tokens");
    EXPECT_EQ(data.train->info().model_config(),
              (nlohmann::json{{"context", 5}, {"vocabulary", base + 100}}));
  }
}

TEST(TokenFiles, ValidationIsTailOrNamedFiles) {
  const TemporaryDirectory directory;
  directory.write("all.bin", stored<std::uint16_t>(counted(100)));
  const OpenedData tail = open_data("tokens", directory / "all.bin", options_of(4, 0.2));
  EXPECT_EQ(tail.train->size(), 19);
  EXPECT_EQ(values(tail.validation->get(std::vector<std::int64_t>{0}).input()), counted(4, 80));
  directory.write("nano/train.bin", stored<std::uint16_t>(counted(50)));
  directory.write("nano/val.bin", stored<std::uint16_t>(counted(20, 500)));
  const OpenedData named = open_data("tokens", directory / "nano", options_of(4, 0.2));
  EXPECT_EQ(named.train->size(), 12);
  EXPECT_EQ(values(named.validation->get(std::vector<std::int64_t>{0}).input()), counted(4, 500));
}

TEST(TokenFiles, WhatFollowsADocumentIsMaskedWhenAsked) {
  const TemporaryDirectory directory;
  const std::string path = directory.write("t.bin", stored<std::uint16_t>({5, 6, 9, 7, 8, 9, 4, 3, 2}));
  DataOptions options = options_of(4);
  options.of_kind.edit<TokenOptions>().end_of_document = 9;
  const std::vector<std::int64_t> both = {0, 1};
  EXPECT_EQ(values(open_data("tokens", path, options).train->get(both).target()),
            (std::vector<std::int64_t>{6, 9, 7, 8, 9, 4, 3, 2}));
  options.of_kind.edit<TokenOptions>().boundaries = "masked";
  EXPECT_EQ(values(open_data("tokens", path, options).train->get(both).target()),
            (std::vector<std::int64_t>{6, 9, -100, 8, 9, -100, 3, 2}));
  options.of_kind.edit<TokenOptions>().end_of_document.reset();
  expect_facts(message_of<UsageError>([&] { open_data("tokens", path, options); }),
               {"eos-token-id", "t.bin'"});
}

TokenDescription described(std::int64_t first, std::int64_t second) {
  return {.vocabulary = 300,
          .end_of_document = 299,
          .tokenizer = "bytes",
          .documents = 2,
          .shards = {{"shard_0.bin", first}, {"shard_1.bin", second}}};
}

TEST(TokenFiles, DescriptionIsFoundAndNeedsNoFlags) {
  const TemporaryDirectory directory;
  directory.write("set/shard_1.bin", stored<std::uint16_t>(counted(30, 20)));
  directory.write("set/shard_0.bin", stored<std::uint16_t>(counted(20)));
  directory.write("set/tokens.json", to_json(described(20, 30)).dump());
  const OpenedData data = open_data("auto", directory / "set", {.validation_fraction = 0, .context = 7});
  EXPECT_EQ(data.kind, "tokens");
  EXPECT_EQ(data.train->info().classes, 300);
  EXPECT_EQ(values(data.train->get(std::vector<std::int64_t>{6}).input()), counted(7, 42));
  const OpenedData shard =
      open_data("auto", directory / "set" / "shard_1.bin", {.validation_fraction = 0, .context = 7});
  EXPECT_EQ(shard.kind, "tokens");
  EXPECT_EQ(shard.train->size(), 4);
}

TEST(TokenFiles, ErrorsNameFilePlaceAndFlag) {
  const TemporaryDirectory directory;
  const std::string odd = directory.write("odd.bin", "12345");
  expect_facts(message_of<DataError>([&] { open_data("tokens", odd, options_of(1)); }),
               {"odd.bin'", "offset 4", "1 bytes", "uint16"});
  const std::string large = directory.write("large.bin", stored<std::uint16_t>({1, 2, 77, 3}));
  expect_facts(message_of<DataError>([&] { open_data("tokens", large, options_of(3, 0, 50)); }),
               {"large.bin'", "offset 4", "token 77", "49"});
  // After the tokens that are checked when the file is opened.
  std::vector<std::int64_t> many(70'000, 1);
  many.back() = 77;
  const OpenedData data = open_data("tokens", directory.write("many.bin", stored<std::uint16_t>(many)),
                                    options_of(69'999, 0, 50));
  expect_facts(message_of<DataError>([&] { data.train->get(std::vector<std::int64_t>{0}); }),
               {"many.bin'", "offset 139998", "token 77", "49"});
  expect_facts(message_of<UsageError>([&] { open_data("tokens", large, {.context = 1}); }),
               {"large.bin'", "tokens.json", "vocabulary-size"});
  directory.write("none/x.txt", "x");
  expect_facts(message_of<DataError>([&] { open_data("tokens", directory / "none", options_of(1)); }),
               {"none'"});
  expect_facts(message_of<DataError>([&] { open_data("tokens", large, options_of(30)); }),
               {"large.bin'", "4", "31"});
  directory.write("set/shard_0.bin", stored<std::uint16_t>(counted(19)));
  directory.write("set/shard_1.bin", stored<std::uint16_t>(counted(30)));
  directory.write("set/tokens.json", to_json(described(20, 30)).dump());
  expect_facts(message_of<DataError>([&] { open_data("auto", directory / "set", {.context = 2}); }),
               {"shard_0.bin'", "38", "20", "40"});
}

// With the width of the flags, neither file has a token beyond the vocabulary.
TEST(TokenFiles, RefusesWiderTokensAndHeaders) {
  const TemporaryDirectory directory;
  RandomStream random(11);
  for (const std::int64_t most : {5'000, 100'000, 200'000}) {
    std::vector<std::int64_t> tokens;
    for (int i = 0; i < 3'000; ++i) tokens.push_back(static_cast<std::int64_t>(random.below(most)));
    const std::string wide = directory.write("wide.bin", stored<std::uint32_t>(tokens));
    expect_facts(message_of<DataError>([&] { open_data("tokens", wide, options_of(8, 0, 65'536)); }),
                 {"wide.bin'", "4 bytes", "uint16", "token-type uint32"});
    DataOptions right = options_of(8, 0, 200'000);
    right.of_kind.edit<TokenOptions>().type = "uint32";
    EXPECT_EQ(values(open_data("tokens", wide, right).train->get(std::vector<std::int64_t>{0}).input()),
              std::vector<std::int64_t>(tokens.begin(), tokens.begin() + 8));
  }
  const std::string numpy =
      directory.write("numpy.bin", "\x93NUMPY" + stored<std::uint16_t>(counted(100)).insert(0, 122, ' '));
  expect_facts(message_of<DataError>([&] { open_data("tokens", numpy, options_of(8, 0, 65'536)); }),
               {"numpy.bin'", "NumPy"});
  // Two-byte tokens, many of them small, are not mistaken for wider ones.
  std::vector<std::int64_t> small(3'000, 3);
  for (std::size_t i = 0; i < small.size(); i += 64) small[i + 1] = 900;
  EXPECT_EQ(open_data("tokens", directory.write("small.bin", stored<std::uint16_t>(small)), options_of(8))
                .train->size(),
            374);
}

TEST(TokenFiles, RefusesFlagsThatContradictDescription) {
  const TemporaryDirectory directory;
  const std::string plain = directory.write("plain.bin", stored<std::uint16_t>(counted(40)));
  expect_facts(message_of<UsageError>([&] { open_data("tokens", plain, options_of(8, 0, 65'537)); }),
               {"vocabulary-size 65537", "uint16", "65536", "uint32"});
  DataOptions wide = options_of(8, 0, (std::int64_t{1} << 32) + 1);
  wide.of_kind.edit<TokenOptions>().type = "uint32";
  expect_facts(message_of<UsageError>([&] { open_data("tokens", plain, wide); }), {"4294967297", "uint32"});
  DataOptions end = options_of(8, 0, 50);
  end.of_kind.edit<TokenOptions>().end_of_document = 50;
  expect_facts(message_of<UsageError>([&] { open_data("tokens", plain, end); }), {"eos-token-id 50"});
  directory.write("set/shard_0.bin", stored<std::uint16_t>(counted(20)));
  directory.write("set/shard_1.bin", stored<std::uint16_t>(counted(30)));
  directory.write("set/tokens.json", to_json(described(20, 30)).dump());
  expect_facts(message_of<UsageError>([&] { open_data("tokens", directory / "set", options_of(8)); }),
               {"vocabulary-size 1000", "tokens.json", "300"});
  EXPECT_EQ(open_data("tokens", directory / "set", options_of(8, 0, 300)).train->size(), 6);
  // A companion file of macOS is not a token file.
  directory.write("mac/train.bin", stored<std::uint16_t>(counted(40)));
  directory.write("mac/._train.bin", std::string(4096, '\x05'));
  EXPECT_EQ(open_data("tokens", directory / "mac", options_of(8)).train->size(), 4);
}

TEST(TokenFiles, DamagedDescriptionsAreRefusedOrWhole) {
  const TemporaryDirectory directory;
  directory.write("shard_0.bin", stored<std::uint16_t>(counted(20)));
  directory.write("shard_1.bin", stored<std::uint16_t>(counted(30)));
  const std::string good = to_json(described(20, 30)).dump();
  RandomStream random(3);
  int refused = 0;
  for (int round = 0; round < 300; ++round) {
    std::string text = good;
    for (int i = 0; i < 3; ++i) text[random.below(text.size())] = static_cast<char>(' ' + random.below(95));
    directory.write("tokens.json", text);
    try {
      const OpenedData data = open_data("tokens", directory.path(), {.validation_fraction = 0, .context = 7});
      EXPECT_EQ(data.train->size(), 7);
    } catch (const DataError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 150);
  for (const char* name : {"../x.bin", "", ".hidden"}) {
    TokenDescription outside = described(20, 30);
    outside.shards[0].file = name;
    directory.write("tokens.json", to_json(outside).dump());
    expect_facts(message_of<DataError>([&] { open_data("tokens", directory.path(), {.context = 2}); }),
                 {"tokens.json", "shard"});
  }
}

}  // namespace
}  // namespace rondo::token_files_test
