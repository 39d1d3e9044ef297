#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <list>

#include "rondo/base/error.h"
#include "rondo/data/bert_text.h"
#include "rondo/data/loader.h"
#include "rondo/data/sampler.h"
#include "rondo/data/subset.h"
#include "tests/errors.h"
#include "tests/temporary_directory.h"

namespace rondo::bert_data_test {
namespace {

using testing::expect_facts;
using testing::message_of;

const std::string kSpecials = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";

std::shared_ptr<const WordPiece> tokenizer() {
  return std::make_shared<const WordPiece>(
      std::vector<std::string>{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film", "book"},
      WordPiece::Options{});
}

LabelledLines parse(const std::string& text, const std::string& label_column = "") {
  static std::list<std::string> kept;  // lines are views
  kept.push_back(text);
  return parse_labelled_text(kept.back(), "file.tsv", label_column);
}

std::string error_of(const std::function<void()>& call) { return message_of<Error>(call); }

TEST(LabelledText, ColumnsMayStandInAnyOrder) {
  EXPECT_EQ(parse("pos\tgood\nneg\tbad").lines[1].first, "bad");
  EXPECT_EQ(parse("good\tpos\nbad\tneg\n", "1").lines[1].label, "neg");
  const LabelledLines named = parse("sentence\tlabel\ngood film\t1\nbad film\t0\n", "label");
  ASSERT_EQ(named.lines.size(), 2U);
  EXPECT_EQ(named.lines[0].first, "good film");
  const LabelledLines pairs = parse("a\tyes\tb\nc\tno\td\n", "1");
  EXPECT_EQ(pairs.lines[0].first, "a");
  EXPECT_EQ(pairs.lines[0].second, "b");
  EXPECT_EQ(parse("\xEF\xBB\xBFpos\ta\r\n\r\nneg\tb\r\n").lines[0].label, "pos");
}

TEST(LabelledText, AFirstLineOfNamesIsAHeader) {
  const std::string reviews = "pos\ta good film\nneg\tbad\npos\tgood\nneg\ta bad book\n";
  for (const std::string header : {"label\ttext\n", "\n\nsentiment\treview\r\n"}) {
    const LabelledLines lines = parse(header + reviews);
    ASSERT_EQ(lines.lines.size(), 4U) << header;
    EXPECT_EQ(lines.class_names, (std::vector<std::string>{"neg", "pos"}));
    EXPECT_EQ(lines.lines.front().first, "a good film");
  }
  EXPECT_EQ(parse("text\tlabel\ngood film\t1\nbad\t0\n", "1").lines.size(), 2U);
  EXPECT_EQ(parse("label\ta\tb\n0\tx\ty\n1\tx\tz\n").class_names, (std::vector<std::string>{"0", "1"}));
  // These are values: a text of several words, a class that other lines have too, and a file with one line
  // per class.
  EXPECT_EQ(parse("other\ta long text\n" + reviews).lines.size(), 5U);
  EXPECT_EQ(parse("pos\tgreat\n" + reviews).lines.size(), 5U);
  EXPECT_EQ(parse("a\tone\nb\ttwo\nc\tthree\n").lines.size(), 3U);
  EXPECT_EQ(parse("7\tseven\n8\teight\n8\tagain\n").lines.size(), 3U);
}

TEST(LabelledText, AmbiguousHeaderLineIsAnError) {
  expect_facts(error_of([] { parse("\nLabel\tReview text\n1\tgood\n0\tbad\n"); }),
               {"'file.tsv'", "line 2", "'Label'", "--label-column Label"});
}

TEST(LabelledText, AHeaderIsNoUnknownClass) {
  const KnownData known{.class_names = {"neg", "pos"}};
  const auto lines = [&](const std::string& text) {
    static std::list<std::string> kept;
    kept.push_back(text);
    return parse_labelled_text(kept.back(), "file.tsv", "", known).lines.size();
  };
  EXPECT_EQ(lines("label\ttext\npos\tgood\n"), 1U);
  EXPECT_EQ(lines("pos\tgood\nneg\tbad\n"), 2U);
  EXPECT_THROW(lines("other\ta long text\npos\tgood\n"), DataError);
  EXPECT_THROW(lines("pos\tgood\nlabel\ttext\n"), DataError);
}

TEST(LabelledText, ClassesAreSortedAndNumbersByTheirValue) {
  EXPECT_EQ(parse("b\tx\na\ty\nb\tz").class_names, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(parse("10\tx\n9\ty\n-1\tz").class_names, (std::vector<std::string>{"-1", "9", "10"}));
}

TEST(LabelledText, ErrorsNameFileAndLine) {
  const auto message = [](const std::string& text, const std::string& column = "") {
    return error_of([&] { parse(text, column); });
  };
  expect_facts(message("pos good\n"), {"'file.tsv'", "line 1", "tab"});
  expect_facts(message("pos\ta\n\nneg\n"), {"'file.tsv'", "line 3", "tab", "2 columns"});
  expect_facts(message("pos\ta\nneg\tb\tc\n"), {"'file.tsv'", "line 2", "3 columns", "2 columns"});
  expect_facts(message("a\tb\tc\td\n"), {"'file.tsv'", "line 1", "4 columns"});
  expect_facts(message("pos\ta\n\tb\n"), {"'file.tsv'", "line 2", "label"});
  expect_facts(message("pos\ta\nneg\t\xFF\n"), {"line 2", "byte 5", "UTF-8"});
  expect_facts(message("pos\ta\npos\tb\n"), {"label", "'pos'"});
  expect_facts(message("\n\n"), {"no line"});
  expect_facts(message("pos\ta\n", "2"), {"column 2"});
  expect_facts(message("text\tlabel\n", "class"), {"class", "text", "label"});
}

TEST(LabelledText, GivesSamplesForBert) {
  const LabelledText data(parse("pos\tgood film\nneg\tbad"), tokenizer(), 6, "file.tsv");
  EXPECT_EQ(data.info().classes, 2);
  EXPECT_EQ(data.info().model_config(), (nlohmann::json{{"vocabulary", 9}, {"classes", 2}}));
  const std::vector<std::int64_t> indices = {1, 0};
  const Batch batch = data.get(indices);
  EXPECT_TRUE(
      at::equal(batch.input()[0],
                torch::tensor({{2, 6, 3, 0, 0, 0}, {0, 0, 0, 0, 0, 0}, {1, 1, 1, 0, 0, 0}}, at::kLong)));
  EXPECT_TRUE(at::equal(batch.input()[1][0], torch::tensor({2, 5, 7, 3, 0, 0}, at::kLong)));
  EXPECT_TRUE(at::equal(batch.target(), torch::tensor({0, 1}, at::kLong)));
  EXPECT_EQ(data.get({}).input().sizes(), (at::IntArrayRef{0, 3, 6}));
  EXPECT_THROW(LabelledText(parse("a\tb\nc\td"), tokenizer(), 4, "f"), UsageError);
}

TEST(MaskedText, HidesAsBertWasTrained) {
  std::vector<std::string> words = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  for (int i = 0; i < 95; ++i) words.push_back("w" + std::to_string(i));
  const auto many = std::make_shared<const WordPiece>(words, WordPiece::Options{});
  std::vector<std::int32_t> tokens(100 * 500);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = 5 + static_cast<std::int32_t>(i * 7 % 95);
  const MaskedText data(tokens, many, 102, /*seed=*/3, "memory");
  ASSERT_EQ(data.size(), 500);
  std::vector<std::int64_t> all(500);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i);
  const Batch batch = data.get(all);
  const at::Tensor asked = batch.target().ne(-100);
  EXPECT_TRUE(asked.sum(1).eq(15).all().item<bool>());
  EXPECT_EQ(asked.select(1, 0).sum().item<int>(), 0);    // never [CLS]
  EXPECT_EQ(asked.select(1, 101).sum().item<int>(), 0);  // nor [SEP]
  const at::Tensor shown = batch.input().select(1, 0);
  const at::Tensor truth =
      torch::tensor(std::vector<std::int64_t>(tokens.begin(), tokens.end()), at::kLong).view({500, 100});
  const at::Tensor inside = asked.narrow(1, 1, 100);
  EXPECT_TRUE(at::equal(batch.target().narrow(1, 1, 100).masked_select(inside), truth.masked_select(inside)));
  EXPECT_TRUE(at::equal(shown.narrow(1, 1, 100).masked_select(~inside), truth.masked_select(~inside)));
  const double count = 7500;
  const double masked = shown.masked_select(asked).eq(4).sum().item<double>() / count;
  const double kept =
      shown.narrow(1, 1, 100).masked_select(inside).eq(truth.masked_select(inside)).sum().item<double>() /
      count;
  EXPECT_NEAR(masked, 0.8 + 0.001, 0.02);  // a random token may also be [MASK]
  EXPECT_NEAR(kept, 0.1 + 0.001, 0.02);
  // All positions are equally likely.
  EXPECT_LT((asked.narrow(1, 1, 100).sum(0).to(at::kDouble) - 75).abs().max().item<double>(),
            5 * std::sqrt(64.0));
}

TEST(MaskedText, DependsOnSampleAndEpochOnly) {
  const MaskedText data(std::vector<std::int32_t>(80, 6), tokenizer(), 12, 3, "memory");
  const auto get = [&](const std::vector<std::int64_t>& indices, std::int64_t epoch) {
    return data.get_at_epoch(indices, epoch);
  };
  const Batch whole = get({0, 1, 2, 3, 4, 5, 6, 7}, 2);
  EXPECT_TRUE(at::equal(get({5}, 2).target()[0], whole.target()[5]));
  EXPECT_TRUE(at::equal(get({7, 1}, 2).input()[1], whole.input()[1]));
  EXPECT_FALSE(at::equal(get({0, 1, 2, 3, 4, 5, 6, 7}, 3).target(), whole.target()));
  const std::vector<std::int64_t> all = {0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_TRUE(at::equal(data.get(all).target(), get(all, 0).target()));
  EXPECT_FALSE(
      at::equal(MaskedText(std::vector<std::int32_t>(80, 6), tokenizer(), 12, 4, "memory").get(all).target(),
                data.get(all).target()));
  // The tail is a shorter sample.
  const MaskedText tail(std::vector<std::int32_t>(12, 6), tokenizer(), 12, 3, "memory");
  EXPECT_EQ(tail.size(), 2);
  const std::vector<std::int64_t> last = {1};
  EXPECT_EQ(tail.get(last).input()[0][2].sum().item<int>(), 4);
  EXPECT_EQ(tail.info().model_config(), (nlohmann::json{{"vocabulary", 9}}));
}

TEST(BertData, LoaderTellsEpochAndIndices) {
  const auto data =
      std::make_shared<MaskedText>(std::vector<std::int32_t>(200, 6), tokenizer(), 12, 3, "memory");
  const auto half = std::make_shared<Subset>(data, std::vector<std::int64_t>{3, 5, 7, 9, 11, 13});
  for (const int threads : {0, 2}) {
    Loader loader(half, std::make_shared<DistributedSampler>(6, DistributedSamplerOptions{.shuffle = false}),
                  {.batch_size = 4, .threads = threads});
    for (const std::int64_t epoch : {0, 4}) {
      loader.seek({epoch, 0});
      const Batch first = *loader.next(), second = *loader.next();
      EXPECT_EQ(first.indices, (std::vector<std::int64_t>{0, 1, 2, 3}));
      EXPECT_EQ(second.indices, (std::vector<std::int64_t>{4, 5}));
      const std::vector<std::int64_t> inner = {11, 13};
      EXPECT_TRUE(at::equal(second.target(), data->get_at_epoch(inner, epoch).target()));
    }
  }
}

TEST(BertData, OpensByKind) {
  const TemporaryDirectory directory;
  DataOptions options{.validation_fraction = 0.25, .context = 8};
  const std::string tsv = directory.write("data.tsv", "pos\tgood\nneg\tbad\npos\tfilm\nneg\tbook\n");
  expect_facts(error_of([&] { open_data("labelled_text", tsv, options); }), {"--vocabulary"});
  options.vocabulary_file = directory.write("vocab.txt", kSpecials + "good\nbad\nfilm\nbook\n");
  const OpenedData labelled = open_data("labelled_text", tsv, options);
  EXPECT_EQ(labelled.train->size(), 3);
  EXPECT_EQ(labelled.validation->size(), 1);

  const std::string text =
      directory.write("book.txt", "good book\n bad film good film\nbook good bad film bad book bad\n");
  const OpenedData masked = open_data("masked_text", text, options);
  EXPECT_EQ(masked.train->size() + masked.validation->size(), 3);  // 13 tokens, 6 per sample
  options.context = 64;
  expect_facts(error_of([&] { open_data("masked_text", text, options); }), {"13 tokens"});
}

}  // namespace
}  // namespace rondo::bert_data_test
