#include <gtest/gtest.h>

#include <locale>
#include <sstream>

#include "rondo/base/arithmetic.h"
#include "rondo/base/bytes.h"
#include "rondo/base/cancel.h"
#include "rondo/base/error.h"
#include "rondo/base/random.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"

namespace rondo::base_test {
namespace {

TEST(Bytes, ParsesEveryUnit) {
  EXPECT_EQ(parse_bytes("512", "--size").count, 512U);
  EXPECT_EQ(parse_bytes("64KiB", "--size"), KiB(64));
  EXPECT_EQ(parse_bytes("25mib", "--size"), MiB(25));
  EXPECT_EQ(parse_bytes("1.5GiB", "--size").count, 3ULL << 29);
  EXPECT_EQ(parse_bytes("100MB", "--size").count, 100000000U);
  EXPECT_EQ(parse_bytes("0", "--size").count, 0U);
}

TEST(Bytes, RejectsWhatIsNotASize) {
  for (const char* text : {"", "MiB", "12XB", "-1", "1..2MiB", "99999999999TiB"}) {
    try {
      parse_bytes(text, "--bucket-size");
      FAIL() << text;
    } catch (const UsageError& e) {
      EXPECT_NE(std::string(e.what()).find("--bucket-size"), std::string::npos) << e.what();
    }
  }
}

TEST(Bytes, FormatsForPeople) {
  EXPECT_EQ(to_string(Bytes{512}), "512 B");
  EXPECT_EQ(to_string(MiB(25)), "25.0 MiB");
}

TEST(Time, ParsesDurations) {
  EXPECT_DOUBLE_EQ(seconds(parse_duration("1.5s", "t")), 1.5);
  EXPECT_DOUBLE_EQ(seconds(parse_duration("200ms", "t")), 0.2);
  EXPECT_DOUBLE_EQ(seconds(parse_duration("2min", "t")), 120);
  EXPECT_DOUBLE_EQ(seconds(parse_duration("30", "t")), 30);
  EXPECT_THROW(parse_duration("soon", "t"), UsageError);
}

TEST(Time, DeadlinesEnd) {
  EXPECT_TRUE(Deadline::after(Duration::zero()).passed());
  EXPECT_FALSE(Deadline::never().passed());
  EXPECT_EQ(Deadline::after(Duration::zero()).remaining(), Duration::zero());
}

TEST(Time, InfiniteDurationIsTheLongestWait) {
  constexpr auto kForEver = std::chrono::milliseconds::max();
  EXPECT_EQ(bounded_duration(std::chrono::milliseconds(1500)), Duration(std::chrono::milliseconds(1500)));
  EXPECT_EQ(bounded_duration(std::chrono::milliseconds(-1)), Duration(std::chrono::milliseconds(-1)));
  EXPECT_EQ(bounded_duration(kForEver), kLongestDuration);
  EXPECT_EQ(bounded_duration(Duration::max()), kLongestDuration);
  const Deadline deadlines[] = {Deadline::after(kForEver), Deadline::after(std::chrono::hours::max()),
                                Deadline::after(Duration::max()),
                                Deadline::after(Duration::max()).later_by(kLongestDuration)};
  for (const Deadline& deadline : deadlines) {
    EXPECT_FALSE(deadline.passed());
    EXPECT_FALSE(deadline.is_never());
    EXPECT_GT(deadline.remaining(), kLongestDuration - std::chrono::hours(1));
    EXPECT_TRUE(deadline.later_by(Duration::max()).is_never());
  }
  EXPECT_TRUE(Deadline::never().later_by(std::chrono::seconds(1)).is_never());
}

TEST(Text, SplitsAndTrims) {
  EXPECT_EQ(split("a,,b", ','), (std::vector<std::string>{"a", "", "b"}));
  EXPECT_TRUE(split("", ',').empty());
  EXPECT_EQ(trim("  x y\n"), "x y");
  EXPECT_EQ(join(std::vector<int>{1, 2, 3}, ", "), "1, 2, 3");
  EXPECT_THROW(parse_integer("12x", "--n"), UsageError);
}

// Punctuation with a decimal comma and dots between thousands.
class OtherPunctuation final : public std::numpunct<char> {
 protected:
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

TEST(Text, IsTheSameWhateverTheProgramsLocale) {
  const std::locale before = std::locale::global(std::locale(std::locale::classic(), new OtherPunctuation));
  std::ostringstream other;
  other << 29884;
  EXPECT_EQ(other.str(), "29.884");
  EXPECT_EQ(str(29884, " ", 0.25), "29884 0.25");
  EXPECT_EQ(join(std::vector<double>{1234.5, 2}, ","), "1234.5,2");
  EXPECT_EQ(to_string(MiB(1500)), "1.5 GiB");
  EXPECT_EQ(to_string(std::chrono::milliseconds(1500)), "1.5 s");
  EXPECT_EQ(parse_integer(str(29884), "--port"), 29884);
  std::locale::global(before);
}

TEST(Random, PhiloxMatchesThePublishedVector) {
  // Known-answer test of Random123 (philox4x32-10, all ones).
  const auto words = philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff});
  EXPECT_EQ(words, (std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Random, StreamsCanBeResumed) {
  RandomStream a(7, 3);
  for (int i = 0; i < 10; ++i) a();
  RandomStream b(7, 3);
  b.seek(a.position());
  EXPECT_EQ(a(), b());
  for (int i = 0; i < 1000; ++i) EXPECT_LT(a.below(10), 10U);
}

TEST(Median, IsTheValueInTheMiddle) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median({3}), 3);
  EXPECT_EQ(median({9, 1, 5}), 5);
  EXPECT_EQ(median({4, 1, 3, 2}), 3);
}

TEST(Cancel, CopiesShareTheFlag) {
  const CancelToken token;
  const CancelToken copy = token;
  EXPECT_FALSE(copy.cancelled());
  token.cancel();
  EXPECT_TRUE(copy.cancelled());
}

}  // namespace
}  // namespace rondo::base_test
