#include "apps/train/stop_signals.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>

#include "rondo/base/error.h"
#include "rondo/base/time.h"
#include "rondo/env/environment.h"
#include "rondo/env/sources/slurm.h"
#include "rondo/launch/stop_signals.h"

namespace rondo {
namespace {

// Set by the signal handlers, or by their owner before they are installed.
std::atomic<bool> stop_signal{false};
std::atomic<bool> says_why{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler uses it");

constexpr std::string_view kNothingToSave =
    "rondo train: stopped by a signal before the first step; there was nothing to save. Run the same command "
    "again, with or without --resume\n";
// Largest delay between the hosts of a job in receiving a signal.
constexpr Duration kSpreadOfSignals = std::chrono::milliseconds(500);

void say_nothing_to_save() {
  if (!says_why.load()) return;
  const ssize_t ignored = ::write(STDERR_FILENO, kNothingToSave.data(), kNothingToSave.size());
  static_cast<void>(ignored);
}

void end_now(int /*signal*/) {
  say_nothing_to_save();
  _exit(static_cast<int>(ExitCode::preempted));
}

void request_stop(int /*signal*/) { stop_signal.store(true); }

bool has_launcher() { return std::getenv("RONDO_LAUNCHER") != nullptr; }

// Returns true if there is a scheduler, which repeats TERM and kills processes that do not end.
bool has_scheduler() { return has_launcher() || env::is_in_slurm_job(env::process_environment()); }

// Returns whether environment variables show that a launcher or scheduler started this process.
bool is_first_rank() {
  const env::EnvironmentMap environment = env::process_environment();
  for (const char* variable : {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    if (const auto rank = env::lookup(environment, variable)) return *rank == "0";
  }
  return true;
}

void handle(int signal, void (*handler)(int), int flags) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART | flags;
  struct sigaction now {};
  // A signal that was ignored at the start, as by nohup or in a shell's background, stays ignored.
  if (sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN) return;
  sigaction(signal, &action, nullptr);
}

void handle_all(void (*handler)(int)) {
  for (const int signal : launch::stop_signals(env::process_environment())) handle(signal, handler, 0);
}

}  // namespace

void end_on_stop_signals() {
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, nullptr);
  says_why.store(is_first_rank());
  handle_all(end_now);
  launch::release_signals(launch::stop_signals(env::process_environment()));
}

void request_stop_on_signals() {
  handle_all(request_stop);
  // Under a launcher a terminal's INT arrives twice, and the launcher itself ends a job that was interrupted
  // twice.
  if (!has_launcher()) handle(SIGINT, request_stop, static_cast<int>(SA_RESETHAND));
}

void let_error_end_process() { handle_all(has_scheduler() ? request_stop : SIG_DFL); }

bool stop_requested() { return stop_signal.load(); }

bool stopped_before_first_step() {
  const Deadline deadline = Deadline::after(has_launcher() ? Duration::zero() : kSpreadOfSignals);
  while (!stop_requested() && !deadline.passed()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  if (stop_requested()) say_nothing_to_save();
  return stop_requested();
}

void hold_stop_signals() { launch::hold_signals(launch::stop_signals(env::process_environment())); }

}  // namespace rondo
