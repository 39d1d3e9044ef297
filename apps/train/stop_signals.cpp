#include "apps/train/stop_signals.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "rondo/base/error.h"

namespace rondo {
namespace {

// Set by the handlers' owner before they are installed, or by the handlers themselves.
std::atomic<bool> stop_signal{false};
std::atomic<bool> says_why{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler uses it");

constexpr std::string_view kNothingToSave =
    "rondo train: stopped by a signal before the first step; there was nothing to save\n";

void end_now(int /*signal*/) {
  if (says_why.load()) {
    const ssize_t ignored = ::write(STDERR_FILENO, kNothingToSave.data(), kNothingToSave.size());
    static_cast<void>(ignored);
  }
  _exit(static_cast<int>(ExitCode::preempted));
}

void request_stop(int /*signal*/) { stop_signal.store(true); }

bool has_launcher() { return std::getenv("RONDO_LAUNCHER") != nullptr; }

void handle(void (*handler)(int), int flags) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  for (const int signal : {SIGTERM, SIGINT}) {
    struct sigaction now {};
    // Who lets a command ignore INT, as a shell does in the background, means it.
    if (sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN) continue;
    sigaction(signal, &action, nullptr);
  }
}

}  // namespace

void end_on_stop_signals() {
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, nullptr);
  const char* rank = std::getenv("RANK");
  says_why.store(!has_launcher() && (rank == nullptr || std::strcmp(rank, "0") == 0));
  handle(end_now, SA_RESTART);
}

void request_stop_on_signals() {
  // Under a launcher a terminal's INT arrives twice, and the launcher itself ends a job that was interrupted
  // twice.
  handle(request_stop, SA_RESTART | (has_launcher() ? 0 : static_cast<int>(SA_RESETHAND)));
}

void let_error_end_process() { handle(has_launcher() ? request_stop : SIG_DFL, SA_RESTART); }

bool stop_requested() { return stop_signal.load(); }

}  // namespace rondo
