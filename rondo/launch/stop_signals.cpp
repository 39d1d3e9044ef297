#include "rondo/launch/stop_signals.h"

#include <csignal>
#include <cstring>
#include <filesystem>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/env/sources/slurm.h"
#include "rondo/launch/failure.h"

namespace rondo::launch {
namespace {

namespace fs = std::filesystem;

sigset_t to_sigset(const std::set<int>& signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  return set;
}

int signal_of_name(std::string_view name) {
  if (name.starts_with("SIG")) name.remove_prefix(3);
  for (int number = 1; number < NSIG; ++number) {
    const char* const known = sigabbrev_np(number);
    if (known != nullptr && name == known) return number;
  }
  return 0;
}

}  // namespace

std::set<int> parse_signals(const std::string& list, const std::string& flag) {
  std::set<int> signals;
  for (const std::string& entry : split(list, ',')) {
    const int number = signal_of_name(trim(entry));
    if (number == 0 || number == SIGKILL || number == SIGSTOP || number == SIGCHLD) {
      throw UsageError(str(flag, " ", list, ": '", entry,
                           "' is not a signal that can be handled; give names such as TERM,USR1"));
    }
    signals.insert(number);
  }
  return signals;
}

std::string signal_list(const std::set<int>& signals) {
  std::vector<std::string> names;
  for (const int signal : signals) names.push_back(signal_name(signal));
  return join(names, ",");
}

std::set<int> default_forwarded_signals() { return {SIGTERM, SIGINT, SIGHUP, SIGQUIT}; }

std::set<int> passed_on_signals(const env::EnvironmentMap& environment) {
  return env::is_in_slurm_job(environment) ? std::set<int>{SIGUSR1} : std::set<int>{};
}

std::set<int> stop_signals(const env::EnvironmentMap& environment) {
  std::set<int> signals = {SIGTERM, SIGINT, SIGHUP};
  signals.merge(passed_on_signals(environment));
  if (const auto asked = env::lookup(environment, kStopSignalsVariable))
    signals.merge(parse_signals(*asked, str("environment variable ", kStopSignalsVariable)));
  return signals;
}

std::set<int> signals_held_at_start() { return stop_signals(env::process_environment()); }

void hold_signals(const std::set<int>& signals) {
  const sigset_t set = to_sigset(signals);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

void release_signals(const std::set<int>& signals) {
  const sigset_t set = to_sigset(signals);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

bool releases_signals(const std::vector<std::string>& command) {
  if (command.empty()) return false;
  std::error_code unreadable;
  const fs::path program = fs::canonical(command.front(), unreadable);
  const fs::path own = fs::read_symlink("/proc/self/exe", unreadable);
  if (unreadable || program.parent_path() != own.parent_path()) return false;
  const std::string name = program.filename();
  const bool is_train_command = name == "rondo" && command.size() > 1 && command[1] == "train";
  return is_train_command || name == "rondo-train" || name == "rondo-train-worker";
}

}  // namespace rondo::launch
