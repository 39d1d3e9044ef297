#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

namespace rondo {

// What made a file or a run, so that it can be told from others and made again.
struct Provenance {
  std::string program;  // "rondo train"
  std::string version;  // of rondo: "0.1.0"
  std::string time;     // UTC: "2026-11-22T16:24:40Z"
  std::string host;
  std::string command;  // as a shell reads it
};

// Of this moment on this host. `arguments` are the program's own, without its name.
Provenance make_provenance(const std::string& program, std::span<const std::string> arguments);

nlohmann::ordered_json to_json(const Provenance& provenance);

// The command line of this process, as the kernel has it; empty where it cannot be read.
std::string own_command();

// `words` as one line that a POSIX shell splits into the same words.
std::string shell_text(std::span<const std::string> words);

// run.json of a run directory: how a training was started. {starts: [{program, version, time, host, command,
// strategy, backend, ranks, first_step, total_steps}]}, one entry for each time, so a resumed run has
// several.

struct RunStart {
  Provenance made;
  std::string strategy;  // that was used, not "auto"
  std::string backend;
  int ranks = 0;
  std::int64_t first_step = 0;   // steps that were done before
  std::int64_t total_steps = 0;  // steps done when it has ended; 0: not known
};

nlohmann::ordered_json to_json(const RunStart& start);

// Throws DataError, naming file and place, for a file that is damaged.
std::vector<RunStart> read_run_starts(const std::filesystem::path& path);

// Writes `start` behind those of `path` that began before it did; what an earlier attempt wrote of the same
// steps is gone.
void add_run_start(const std::filesystem::path& path, const RunStart& start);

// A run directory for one writer: a lock of an open file (F_OFD_SETLK) on RUN/run.lock, held as long as the
// object lives and released by the kernel when its process dies. Who only reads asks for nothing and is not
// kept out.
class RunLock {
 public:
  // Makes the directory when it is missing. Throws UsageError naming the process that has it, Error when the
  // directory or the file cannot be made. On a file system without locks a warning is logged instead.
  explicit RunLock(std::filesystem::path run_directory);
  // Removes the file, and the directory if the object made it and nothing has been put into it.
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  // Whether a process holds it now, found out without taking it; where the file system has no locks, whether
  // the file is there.
  static bool is_held(const std::filesystem::path& run_directory);

  static constexpr const char* file_name = "run.lock";

 private:
  bool try_open();

  std::filesystem::path directory_;
  bool made_directory_ = false;
  int descriptor_ = -1;
};

}  // namespace rondo
