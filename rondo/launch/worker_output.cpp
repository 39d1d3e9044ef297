#include "rondo/launch/worker_output.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "rondo/base/error.h"
#include "rondo/base/terminal.h"

namespace rondo::launch {
namespace {

constexpr std::size_t kFullBytes = 1U << 20;
constexpr std::size_t kDrainedBytes = 1U << 18;
// PIPE_BUF: a pipe that is ready for output accepts this many bytes without blocking.
constexpr std::size_t kSafePiece = 4096;
constexpr std::string_view kStartOfLine = "\r\x1b[K";
constexpr std::string_view kEraseLine = kStartOfLine.substr(1);

bool is_regular_file(int descriptor) {
  struct stat status {};
  return fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
}

}  // namespace

Console::Console(EventLoop& loop, int descriptor)
    : loop_(loop),
      descriptor_(descriptor),
      is_terminal_(is_terminal_with_escapes(descriptor)),
      coloured_(wants_colours(descriptor)),
      always_ready_(is_regular_file(descriptor)) {}

Console::~Console() {
  if (watching_) loop_.forget(descriptor_);
}

int Console::columns() const { return terminal_size(descriptor_).columns; }

bool Console::full() const { return pending_.size() - sent_ > kFullBytes; }

void Console::call_when_drained(const void* owner, std::function<void()> resume) {
  waiting_.push_back({owner, std::move(resume)});
}

void Console::forget(const void* owner) {
  std::erase_if(waiting_, [owner](const Waiting& waiting) { return waiting.owner == owner; });
}

void Console::write(std::string_view text, const void* writer) {
  if (broken_) return;
  last_writer_ = writer;
  if (unfinished_line_) pending_ += kStartOfLine;
  unfinished_line_ = false;
  pending_ += text;
  if (!watching_) flush();
}

void Console::write_unfinished(std::string_view text, const void* writer) {
  if (broken_) return;
  last_writer_ = writer;
  pending_ += kStartOfLine;
  // A longer line would be continued on the next one, and could not be removed as a whole.
  pending_ += clipped(text, static_cast<std::size_t>(std::max(1, columns() - 1)));
  unfinished_line_ = true;
  if (!watching_) flush();
}

void Console::flush() {
  while (sent_ < pending_.size()) {
    std::size_t size = pending_.size() - sent_;
    if (!always_ready_) {
      pollfd ready{descriptor_, POLLOUT, 0};
      if (poll(&ready, 1, 0) == 0) break;
      size = std::min(size, kSafePiece);
    }
    const ssize_t written = ::write(descriptor_, pending_.data() + sent_, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) break;
    if (written < 0) {
      broken_ = true;
      error_ = errno == EPIPE ? 0 : errno;
      sent_ = pending_.size();
      break;
    }
    sent_ += static_cast<std::size_t>(written);
  }
  if (sent_ == pending_.size()) {
    pending_.clear();
    sent_ = 0;
  } else if (sent_ > kFullBytes) {
    pending_.erase(0, sent_);
    sent_ = 0;
  }
  const bool must_wait = sent_ < pending_.size();
  if (must_wait && !watching_) {
    watching_ = loop_.watch_output(descriptor_, [this] { became_writable(); });
    if (!watching_) always_ready_ = true;
  } else if (!must_wait && watching_) {
    loop_.forget(descriptor_);
    watching_ = false;
  }
}

void Console::became_writable() {
  flush();
  if (pending_.size() - sent_ > kDrainedBytes) return;
  for (const Waiting& waiting : std::exchange(waiting_, {})) waiting.resume();
}

namespace {

// Longer lines are shown in pieces, so that a worker that never ends a line cannot exhaust memory.
constexpr std::size_t kLongestLine = 1U << 20;

// Upper bound of the kernel's buffer of a pseudo-terminal, which does not report its fill level.
constexpr std::size_t kTerminalBuffer = 1U << 20;

// Returns an upper bound of the bytes in the pipe or pseudo-terminal.
std::size_t bytes_waiting(int descriptor) {
  if (descriptor < 0) return 0;
  if (isatty(descriptor) == 1) return kTerminalBuffer;
  int count = 0;
  return ioctl(descriptor, FIONREAD, &count) == 0 ? static_cast<std::size_t>(count) : 0;
}

}  // namespace

WorkerOutput::WorkerOutput(EventLoop& loop, Descriptor source, Targets targets)
    : loop_(loop), source_(std::move(source)), targets_(std::move(targets)) {
  set_nonblocking(source_.number());
  loop_.watch_input(source_.number(), [this] { on_readable(); });
}

WorkerOutput::~WorkerOutput() {
  if (source_.valid() && !paused_) loop_.forget(source_.number());
  if (paused_) targets_.console->forget(this);
}

WorkerOutput::Read WorkerOutput::read_some() {
  std::array<char, 65536> buffer;
  while (true) {
    const ssize_t count = read(source_.number(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return Read::nothing_now;
    if (count <= 0) return Read::end;
    taken_ += static_cast<std::size_t>(count);
    consume({buffer.data(), static_cast<std::size_t>(count)});
    return Read::some;
  }
}

void WorkerOutput::on_readable() {
  if (read_some() == Read::end) {
    finish();
    return;
  }
  Console* console = targets_.console;
  if (console == nullptr) return;
  if (console->broken() && !targets_.log_file.valid()) {
    finish();  // the worker gets SIGPIPE, as it would without a launcher
  } else if (console->full() && !paused_) {
    paused_ = true;
    loop_.forget(source_.number());
    console->call_when_drained(this, [this] {
      paused_ = false;
      if (source_.valid()) loop_.watch_input(source_.number(), [this] { on_readable(); });
    });
  }
}

void WorkerOutput::drain() {
  // Reads only the data available now: a process that the worker left behind may write forever.
  const std::size_t until = taken_ + bytes_waiting(source_.number());
  while (source_.valid() && taken_ < until) {
    const Read result = read_some();
    if (result == Read::end) finish();
    if (result == Read::nothing_now) return;
  }
}

void WorkerOutput::close() {
  drain();
  if (source_.valid()) finish();
}

void WorkerOutput::consume(std::string_view data) {
  keep_tail(data);
  if (targets_.log_file.valid()) write_log(data);
  if (targets_.console != nullptr) show(data);
}

void WorkerOutput::show(std::string_view data) {
  shown_.clear();
  while (!data.empty()) {
    const std::size_t end = data.find('\n');
    if (end == std::string_view::npos) break;
    if (partial_.empty()) {
      show_line(data.substr(0, end));
    } else {
      partial_ += data.substr(0, end);
      show_line(partial_);
      partial_.clear();
    }
    data.remove_prefix(end + 1);
  }
  partial_ += data;
  if (partial_.size() > kLongestLine) {
    show_line(partial_);
    partial_.clear();
  }
  if (!shown_.empty()) targets_.console->write(shown_, this);
  // A progress bar rewrites its line without ending it, so shows the latest state of the line.
  const std::size_t rewritten = partial_.find_last_of('\r', partial_.size() < 2 ? 0 : partial_.size() - 2);
  if (targets_.console->is_terminal() && rewritten != std::string::npos) {
    partial_.erase(0, rewritten + 1);
    show_unfinished();
  }
}

void WorkerOutput::show_unfinished() {
  // A removed line leaves no prefix behind.
  const bool is_removed = partial_ == kEraseLine;
  targets_.console->write_unfinished(is_removed ? "" : targets_.prefix + partial_, this);
  // The worker's terminal follows the launcher's when that is resized.
  const int columns = targets_.console->columns();
  const int before = std::exchange(columns_, columns);
  winsize window{};
  if (before == 0 || before == columns || ioctl(source_.number(), TIOCGWINSZ, &window) != 0) return;
  const int own = std::max(1, window.ws_col + columns - before);
  window.ws_col = static_cast<unsigned short>(own);
  ioctl(source_.number(), TIOCSWINSZ, &window);
}

void WorkerOutput::show_line(std::string_view line) {
  if (targets_.console->is_terminal()) {
    // Shows only the last state of a rewritten line, as a terminal would without the prefix.
    if (line.ends_with('\r')) line.remove_suffix(1);
    line.remove_prefix(line.rfind('\r') + 1);
  }
  shown_ += targets_.prefix;
  shown_ += line;
  shown_ += '\n';
}

void WorkerOutput::write_log(std::string_view data) {
  while (!data.empty()) {
    const ssize_t written = write(targets_.log_file.number(), data.data(), data.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      // A full disk must not stop the job; later output still goes to the console.
      std::fprintf(stderr, "rondo run: cannot write %s: %s; this log ends here\n", targets_.log_path.c_str(),
                   errno_text(errno).c_str());
      targets_.log_file.reset();
      return;
    }
    data.remove_prefix(static_cast<std::size_t>(written));
  }
}

void WorkerOutput::keep_tail(std::string_view data) {
  tail_ += data;
  if (tail_.size() > 2 * kTailBytes) tail_.erase(0, tail_.size() - kTailBytes);
}

void WorkerOutput::finish() {
  if (targets_.console != nullptr && targets_.console->is_terminal() && partial_ == kEraseLine)
    partial_.clear();
  if (!partial_.empty() && targets_.console != nullptr) {
    shown_.clear();
    show_line(partial_);
    partial_.clear();
    targets_.console->write(shown_, this);
  }
  if (!paused_) loop_.forget(source_.number());
  source_.reset();
}

}  // namespace rondo::launch
