#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "rondo/base/terminal.h"
#include "rondo/launch/worker_output.h"
#include "tests/temporary_directory.h"

namespace rondo::launch::output_test {
namespace {

// A worker's stream and the console that shows it, both pipes of this test.
class Output : public ::testing::Test {
 protected:
  void SetUp() override {
    set_nonblocking(shown_.read_end.number());
    console_ = std::make_unique<Console>(loop_, shown_.write_end.number());
    WorkerOutput::Targets targets;
    targets.console = console_.get();
    targets.prefix = "[rank 0] ";
    output_ = std::make_unique<WorkerOutput>(loop_, std::move(stream_.read_end), std::move(targets));
  }

  // Writes whole lines of `text` until the console is full and the worker is paused. Returns the number of
  // lines.
  std::size_t write_until_paused(const std::string& text) {
    set_nonblocking(stream_.write_end.number());
    std::size_t written = 0;
    while (true) {
      const ssize_t count = write(stream_.write_end.number(), text.data(), text.size());
      if (count > 0) {
        EXPECT_EQ(count, static_cast<ssize_t>(text.size()));
        ++written;
      } else if (console_->full()) {
        return written;
      } else {
        loop_.run_once(Deadline::after(std::chrono::seconds(60)));
      }
    }
  }

  void worker_writes(std::string_view text) {
    ASSERT_EQ(write(stream_.write_end.number(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
    loop_.run_once(Deadline::after(std::chrono::seconds(60)));
  }

  std::string shown() {
    std::array<char, 65536> buffer;
    std::string text;
    while (true) {
      const ssize_t count = read(shown_.read_end.number(), buffer.data(), buffer.size());
      if (count <= 0) return text;
      text.append(buffer.data(), static_cast<std::size_t>(count));
    }
  }

  EventLoop loop_;
  Pipe stream_ = make_pipe();
  Pipe shown_ = make_pipe();
  std::unique_ptr<Console> console_;
  std::unique_ptr<WorkerOutput> output_;
};

TEST_F(Output, EveryLineCarriesTheRank) {
  worker_writes("one\ntwo\n\n");
  EXPECT_EQ(shown(), "[rank 0] one\n[rank 0] two\n[rank 0] \n");
}

TEST_F(Output, ALineIsShownWhenItIsWhole) {
  worker_writes("one\nbeg");
  EXPECT_EQ(shown(), "[rank 0] one\n");
  worker_writes("inning");
  EXPECT_EQ(shown(), "");
  worker_writes(" and end\nne");
  EXPECT_EQ(shown(), "[rank 0] beginning and end\n");
}

TEST_F(Output, TheLastLineNeedsNoEnd) {
  worker_writes("last words");
  stream_.write_end.reset();
  loop_.run_once(Deadline::after(std::chrono::seconds(60)));
  EXPECT_EQ(shown(), "[rank 0] last words\n");
  EXPECT_TRUE(output_->ended());
}

TEST_F(Output, ClosingShowsWhatIsStillInThePipe) {
  ASSERT_EQ(write(stream_.write_end.number(), "a\nb", 3), 3);
  output_->close();
  EXPECT_EQ(shown(), "[rank 0] a\n[rank 0] b\n");
  EXPECT_EQ(output_->tail(), "a\nb");
}

TEST_F(Output, TheTailIsBounded) {
  std::string line(1000, 'x');
  line += '\n';
  for (int i = 0; i < 100; ++i) {
    worker_writes(line);
    shown();
  }
  EXPECT_GE(output_->tail().size(), WorkerOutput::kTailBytes);
  EXPECT_LE(output_->tail().size(), 2 * WorkerOutput::kTailBytes);
}

TEST_F(Output, SlowReaderPausesTheWorkerWithoutLoss) {
  // Far more than the console buffers: the worker's pipe must fill up.
  const std::string text = std::string(999, 'y') + "\n";
  const std::size_t written = write_until_paused(text);
  stream_.write_end.reset();
  std::string all;
  while (!output_->ended() || !console_->drained()) {
    all += shown();
    loop_.run_once(Deadline::after(std::chrono::milliseconds(100)));
  }
  all += shown();
  EXPECT_EQ(all.size(), written * (text.size() + std::string("[rank 0] ").size()));
}

TEST_F(Output, EndedPausedWorkerIsNotCalled) {
  const std::string text = std::string(999, 'y') + "\n";
  const std::size_t written = write_until_paused(text);
  output_->close();
  output_.reset();
  std::string all;
  while (!console_->drained()) {
    all += shown();
    loop_.run_once(Deadline::after(std::chrono::milliseconds(100)));
  }
  all += shown();
  EXPECT_EQ(all.size(), written * (text.size() + std::string("[rank 0] ").size()));
}

TEST_F(Output, AClosedConsoleEndsTheStream) {
  signal(SIGPIPE, SIG_IGN);
  shown_.read_end.reset();
  worker_writes("nobody reads this\n");
  EXPECT_TRUE(console_->broken());
  EXPECT_TRUE(output_->ended());
  signal(SIGPIPE, SIG_DFL);
}

// A pseudo-terminal of 24 rows, whose leader does not block.
struct PseudoTerminal {
  explicit PseudoTerminal(unsigned short columns) : leader(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)) {
    EXPECT_EQ(grantpt(leader.number()), 0);
    EXPECT_EQ(unlockpt(leader.number()), 0);
    follower = Descriptor(open(ptsname(leader.number()), O_RDWR | O_NOCTTY | O_CLOEXEC));
    set_nonblocking(leader.number());
    resize(columns);
  }
  void resize(unsigned short columns) const {
    winsize size{};
    size.ws_col = columns;
    size.ws_row = 24;
    EXPECT_EQ(ioctl(follower.number(), TIOCSWINSZ, &size), 0);
  }

  Descriptor leader, follower;
};

TEST(ConsoleOnATerminal, CutsABarAndPassesResizesOn) {
  setenv("TERM", "xterm", 1);
  EventLoop loop;
  const PseudoTerminal shown(40);
  PseudoTerminal workers(31);
  Console console(loop, shown.follower.number());
  WorkerOutput::Targets targets;
  targets.console = &console;
  targets.prefix = "[rank 0] ";
  WorkerOutput output(loop, std::move(workers.leader), std::move(targets));
  const auto draws = [&](const std::string& bar) {
    const std::string text = "\r" + bar + "\x1b[K";
    EXPECT_EQ(write(workers.follower.number(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
    loop.run_once(Deadline::after(std::chrono::seconds(60)));
    std::array<char, 65536> buffer;
    const ssize_t count = read(shown.leader.number(), buffer.data(), buffer.size());
    return std::string(buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(0, count)));
  };
  EXPECT_EQ(draws("half"), "\r\x1b[K[rank 0] half\x1b[K");
  EXPECT_EQ(draws(std::string(100, '=')), "\r\x1b[K[rank 0] " + std::string(30, '=') + "\x1b[K");
  EXPECT_EQ(draws(""), "\r\x1b[K") << "a removed line leaves no prefix";
  shown.resize(60);
  draws("half");
  EXPECT_EQ(terminal_size(workers.follower.number()).columns, 51);
}

TEST(Console, WritesToARegularFileAtOnce) {
  const TemporaryDirectory directory;
  const std::string path = directory / "console";
  {
    EventLoop loop;
    const Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    Console console(loop, file.number());
    console.write(std::string(3 << 20, 'z'), this);
    EXPECT_TRUE(console.drained());
    EXPECT_FALSE(console.is_terminal());
  }
  EXPECT_EQ(std::filesystem::file_size(path), 3U << 20);
}

}  // namespace
}  // namespace rondo::launch::output_test
