#include "rondo/launch/console.h"

#include <poll.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "rondo/base/terminal.h"

namespace rondo::launch {
namespace {

constexpr std::size_t kFullBytes = 1U << 20;
constexpr std::size_t kDrainedBytes = 1U << 18;
// A pipe that is ready for output takes this much without blocking (PIPE_BUF).
constexpr std::size_t kSafePiece = 4096;
constexpr std::string_view kStartOfLine = "\r\x1b[K";

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
  pending_ += text;
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

}  // namespace rondo::launch
