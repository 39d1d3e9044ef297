#include "rondo/launch/failure.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>

#include "rondo/base/error.h"
#include "rondo/base/file_access.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/printable.h"
#include "rondo/base/process.h"
#include "rondo/base/text.h"

namespace rondo::launch {

using Json = nlohmann::json;

namespace {

constexpr const char* kPeerLost = "peer_lost";

void write_error_file(std::string_view message, bool peer_lost) noexcept {
  const char* path = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (path == nullptr || *path == '\0') return;
  try {
    Json extra = {{"timestamp", std::to_string(std::time(nullptr))}};
    if (peer_lost) extra[kPeerLost] = true;
    const Json content = {
        {"message", {{"message", printable(message, message.size())}, {"extraInfo", extra}}}};
    write_output(path, content.dump(-1, ' ', false, Json::error_handler_t::replace));
  } catch (...) {
    // The failure itself is printed to standard error; a second error here has no recipient.
  }
}

// Returns the value of "message"; null if the file is missing or malformed.
Json message_in(const std::string& path) {
  try {
    const Json content = read_json_file(path);
    if (content.is_object() && content.contains("message")) return content["message"];
  } catch (const DataError&) {
    // Nothing was written, or the file is truncated; the worker's last output lines remain.
  }
  return nullptr;
}

}  // namespace

void record_failure(std::string_view message) noexcept { write_error_file(message, /*peer_lost=*/false); }

void record_failure(const std::exception& error) noexcept {
  write_error_file(plain_message(error), dynamic_cast<const PeerLostError*>(&error) != nullptr);
}

std::string read_error_file(const std::string& path) {
  const Json message = message_in(path);
  if (message.is_string()) return message.get<std::string>();
  if (message.is_object() && message.contains("message") && message["message"].is_string()) {
    return message["message"].get<std::string>();
  }
  return {};
}

bool tells_of_lost_peer(const std::string& path) {
  const Json message = message_in(path);
  if (!message.is_object() || !message.contains("extraInfo")) return false;
  const Json& extra = message["extraInfo"];
  return extra.is_object() && extra.contains(kPeerLost) && extra[kPeerLost] == true;
}

namespace {

using WallTime = std::chrono::system_clock::time_point;

constexpr std::size_t kTailLines = 15;
constexpr std::size_t kLongestNote = 8192;
constexpr std::size_t kLongestLineForOthers = 600;
// Length of the beginning by which a note is recognised. The printed copy of a longer note may be cut at
// another place.
constexpr std::size_t kNoteBeginning = 200;
// Resolution of the clock of file times.
constexpr auto kFileClockTick = std::chrono::milliseconds(10);

bool stopped_by_launcher(const AttemptEnd& end, const Worker& worker) {
  const int signal = worker.end->signal;
  if (worker.end->suspended > Duration{}) return false;
  return end.stopped.contains(worker.rank) && (signal == SIGTERM || signal == SIGKILL);
}

WallTime time_of_failure(const Worker& worker, const std::string& error_file) {
  struct stat status {};
  if (error_file.empty() || stat(error_file.c_str(), &status) != 0) return worker.end->wall_time;
  // The other process ended before the file was written, but a busy launcher may see that end later.
  if (tells_of_lost_peer(error_file)) return worker.end->wall_time;
  const auto written = WallTime(std::chrono::duration_cast<WallTime::duration>(
      std::chrono::seconds(status.st_mtim.tv_sec) + std::chrono::nanoseconds(status.st_mtim.tv_nsec)));
  return std::min(worker.end->wall_time, written + kFileClockTick);
}

std::string how_it_ended(const WorkerEnd& end) {
  if (end.exec_error != 0) return "could not be started: " + errno_text(end.exec_error);
  if (end.signal == 0) return str("exited with code ", end.exit_code);
  if (end.suspended > Duration{}) {
    return str("was suspended (SIGSTOP) for ", to_string(end.suspended),
               ", longer than others wait for it, and was killed");
  }
  const char* hint = end.signal == SIGKILL ? " (not by the launcher; out of memory? see dmesg)" : "";
  return str("was killed by ", signal_name(end.signal), end.core_dumped ? " (core dumped)" : "", hint);
}

// Returns the last lines of `text`, indented.
std::string last_lines(std::string_view text) {
  std::vector<std::string> lines = split(text, '\n');
  while (!lines.empty() && trim(lines.back()).empty()) lines.pop_back();
  if (lines.size() > kTailLines) lines.erase(lines.begin(), lines.end() - kTailLines);
  std::string result;
  for (const std::string& line : lines) result += str("    ", line, "\n");
  return result;
}

// Returns the end of a stream that was redirected to a file.
std::string file_tail(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return {};
  const off_t size = lseek(file.number(), 0, SEEK_END);
  std::string text(std::min<std::size_t>(static_cast<std::size_t>(size), WorkerOutput::kTailBytes), '\0');
  const ssize_t count =
      pread(file.number(), text.data(), text.size(), size - static_cast<off_t>(text.size()));
  text.resize(count < 0 ? 0 : static_cast<std::size_t>(count));
  return text;
}

std::string other_worker(const AttemptEnd& end, const WorkerSpec& spec, const Worker& worker,
                         const Worker& root) {
  const WorkerEnd& how = *worker.end;
  std::string text = str("  ", spec.name(), " (pid ", worker.pid, ") ");
  if (!how.failed()) {
    text += "ended normally";
  } else if (stopped_by_launcher(end, worker)) {
    text += str("was stopped by the launcher (", signal_name(how.signal), ")");
  } else {
    // The root cause is the first worker to report a failure, which need not be the first to exit.
    const Duration after = how.at - root.end->at;
    text += str(how_it_ended(how), ", ", to_string(after < Duration{} ? -after : after),
                after < Duration{} ? " earlier" : " later");
  }
  if (worker.suspended_at_failure) text += "; it was suspended (SIGSTOP) when the first one failed";
  return text + "\n";
}

}  // namespace

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? str("signal ", signal) : str("SIG", name);
}

std::optional<std::size_t> root_cause(const AttemptEnd& end, const std::vector<WorkerSpec>& specs) {
  std::optional<std::size_t> first;
  WallTime first_time;
  for (const int rank : end.order) {
    const auto index = static_cast<std::size_t>(rank);
    const Worker& worker = *end.workers[index];
    if (worker.end->suspended > Duration{}) return index;
    if (!worker.end->failed() || stopped_by_launcher(end, worker) || end.tolerated.contains(rank)) continue;
    const WallTime time = time_of_failure(worker, specs[index].error_file);
    if (first && time >= first_time) continue;
    first = index;
    first_time = time;
  }
  return first;
}

int job_exit_code(const AttemptEnd& end, const std::optional<std::size_t>& root) {
  constexpr int preempted = static_cast<int>(ExitCode::preempted);
  if (end.signal != 0) {
    const auto ended_with = [](auto... codes) {
      return [codes...](const auto& worker) {
        return worker->end->signal == 0 && ((worker->end->exit_code == codes) || ...);
      };
    };
    if (std::all_of(end.workers.begin(), end.workers.end(), ended_with(0))) return 0;
    if (std::all_of(end.workers.begin(), end.workers.end(), ended_with(0, preempted))) return preempted;
    return 128 + end.signal;
  }
  if (!root) return end.stopped.empty() && !end.abandoned ? 0 : static_cast<int>(ExitCode::failed);
  const WorkerEnd& how = *end.workers[*root]->end;
  return how.signal != 0 ? 128 + how.signal : how.exit_code;
}

std::string failure_in_a_line(const AttemptEnd& end, const std::vector<WorkerSpec>& specs, std::size_t root) {
  const std::string message = printable(read_error_file(specs[root].error_file), kLongestLineForOthers);
  return str(specs[root].name(), " on host ", host_name(), " ", how_it_ended(*end.workers[root]->end),
             message.empty() ? "" : ": ", message.substr(0, message.find('\n')));
}

std::string describe_failure(const AttemptEnd& end, const std::vector<WorkerSpec>& specs, std::size_t root,
                             TimePoint started) {
  const Worker& first = *end.workers[root];
  const WorkerSpec& spec = specs[root];
  std::string text =
      str(spec.name(), " on host ", host_name(), " (pid ", first.pid, ") ", how_it_ended(*first.end), ", ",
          to_string(first.end->at - started), " after the start\n");
  if (!spec.command.empty()) text += str("  command: ", join(spec.command, " "), "\n");
  if (first.end->preempted) {
    text += "  it was pre-empted and has saved its state; the same command with --resume continues\n";
  }
  // Prints everything once: omits output lines that are directly above, and an error message that the last
  // lines contain.
  const std::string message = printable(read_error_file(spec.error_file), kLongestNote);
  const bool to_file = spec.err.route == StreamSpec::Route::file;
  const std::string tail = last_lines(to_file ? file_tail(spec.err.log_path) : first.end->stderr_tail);
  const std::string beginning = message.substr(0, std::min(message.find('\n'), kNoteBeginning));
  const bool in_tail = tail.find(beginning) != std::string::npos;
  if (!message.empty() && !in_tail) text += str("  error: ", message, "\n");
  if (!tail.empty() && !first.end->stderr_shown_last) text += "  last lines of its standard error:\n" + tail;
  for (const int rank : end.order) {
    const auto index = static_cast<std::size_t>(rank);
    if (rank != first.rank) text += other_worker(end, specs[index], *end.workers[index], first);
  }
  return text;
}

}  // namespace rondo::launch
