#include "rondo/base/terminal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

namespace rondo::terminal_test {
namespace {

// A pseudo-terminal of a given number of columns.
class PseudoTerminal {
 public:
  explicit PseudoTerminal(unsigned short columns) : leader_(posix_openpt(O_RDWR | O_NOCTTY)) {
    EXPECT_EQ(grantpt(leader_), 0);
    EXPECT_EQ(unlockpt(leader_), 0);
    follower_ = open(ptsname(leader_), O_RDWR | O_NOCTTY);
    resize(columns);
  }
  ~PseudoTerminal() {
    close(follower_);
    close(leader_);
  }
  PseudoTerminal(const PseudoTerminal&) = delete;
  PseudoTerminal& operator=(const PseudoTerminal&) = delete;
  void resize(unsigned short columns) const {
    winsize size{};
    size.ws_col = columns;
    EXPECT_EQ(ioctl(leader_, TIOCSWINSZ, &size), 0);
  }
  int descriptor() const { return follower_; }

 private:
  int leader_;
  int follower_;
};

class Terminal : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"COLUMNS", "NO_COLOR"}) unsetenv(name);
    setenv("TERM", "xterm", 1);
  }
  void TearDown() override { SetUp(); }
};

TEST_F(Terminal, WidthComesFromColumnsOrTerminal) {
  const PseudoTerminal terminal(132);
  EXPECT_EQ(text_width(terminal.descriptor()), 132);
  terminal.resize(40);
  EXPECT_EQ(text_width(terminal.descriptor()), 40);
  setenv("COLUMNS", "100", 1);
  EXPECT_EQ(text_width(terminal.descriptor()), 100);
}

TEST_F(Terminal, InvalidWidthsAreIgnored) {
  const PseudoTerminal terminal(0);
  for (const char* columns : {"0", "-5", "", "wide"}) {
    setenv("COLUMNS", columns, 1);
    EXPECT_EQ(text_width(terminal.descriptor()), 80) << columns;
  }
  EXPECT_EQ(terminal_size(-1).columns, 80);
  EXPECT_EQ(terminal_size(terminal.descriptor()).rows, 24);
}

TEST_F(Terminal, ColoursNeedATerminalThatHasThem) {
  const PseudoTerminal terminal(80);
  EXPECT_TRUE(wants_colours(terminal.descriptor()));
  setenv("NO_COLOR", "1", 1);
  EXPECT_FALSE(wants_colours(terminal.descriptor()));
  EXPECT_TRUE(is_terminal_with_escapes(terminal.descriptor()));
  unsetenv("NO_COLOR");
  setenv("TERM", "dumb", 1);
  EXPECT_FALSE(wants_colours(terminal.descriptor()));
  EXPECT_FALSE(is_terminal_with_escapes(terminal.descriptor()));
  EXPECT_EQ(TextColours(false).heading("a"), "a");
  EXPECT_EQ(TextColours(true).heading("a"), "\x1b[1ma\x1b[0m");
}

TEST_F(Terminal, LinesAreClippedByCharactersNotBytes) {
  EXPECT_EQ(clipped("abcdef", 3), "abc");
  EXPECT_EQ(clipped("abc", 80), "abc");
  EXPECT_EQ(clipped("\xC3\xA4\xC3\xB6\xC3\xBC", 2), "\xC3\xA4\xC3\xB6");
  EXPECT_EQ(clipped("\x1b[36mabc\x1b[0mdef\x1b[K", 2), "\x1b[36mab\x1b[0m\x1b[K");
  EXPECT_EQ(clipped("ab", 0), "");
}

}  // namespace
}  // namespace rondo::terminal_test
