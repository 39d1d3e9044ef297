#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace rondo {

// Provenance of a file or a run: identifies it and allows to reproduce it.
struct Provenance {
  std::string program;  // "rondo train"
  std::string version;  // version of rondo: "0.2.0"
  std::string time;     // UTC: "2026-11-22T16:24:40Z"
  std::string host;
  std::string command;  // in shell syntax
};

// Returns the provenance for this moment on this host. `arguments` exclude the program's name.
Provenance make_provenance(const std::string& program, std::span<const std::string> arguments);

nlohmann::ordered_json to_json(const Provenance& provenance);

// Returns the command line of this process from the kernel; empty if it cannot be read.
std::string own_command();

// Returns `words` as one line that a POSIX shell splits into the same words.
std::string shell_text(std::span<const std::string> words);

// An entry of run.json, the record of a training's starts: {name, tags, notes, starts: [{program, version,
// time, host, command, strategy, backend, ranks, first_step, total_steps, git_commit, machine, parameters,
// changed_options}]}. A resumed run has several entries. Unknown members are missing.
struct RunStart {
  Provenance made;
  std::string strategy;  // the strategy in use, never "auto"
  std::string backend;
  int ranks = 0;
  std::int64_t first_step = 0;   // number of steps done before this start
  std::int64_t total_steps = 0;  // steps done at the end of the training; 0: unknown
  std::string git_commit = {};   // commit of the folder in which the training started; empty: unknown
  std::string machine = {};      // processor of rank 0's host; empty: unknown
  std::int64_t parameters = 0;   // number of parameters of the whole model; 0: unknown
  // keys of config.json whose values differ from the defaults; nullopt: unknown
  std::optional<std::vector<std::string>> changed_options = {};
};

nlohmann::ordered_json to_json(const RunStart& start);

// Throws DataError naming file and location if the file is damaged.
std::vector<RunStart> read_run_starts(const std::filesystem::path& path);

// Labels of a run in run.json, for its readers: they have no effect on the training.
struct RunLabels {
  std::optional<std::string> name = {};               // nullopt: none, or unchanged
  std::optional<std::vector<std::string>> tags = {};  // same
  std::optional<std::string> notes = {};              // same
};

// Returns the labels in `path`. Throws DataError naming file and location if the file is damaged.
RunLabels read_run_labels(const std::filesystem::path& path);

// Sets the labels in `path` that `changes` contains; an empty text or list removes a label. Creates the file
// if it is missing. Throws DataError if the file is damaged.
void change_run_labels(const std::filesystem::path& path, const RunLabels& changes);

// Appends `start` after the entries of `path` that began before it, and drops entries of an earlier attempt
// at the same steps. A resumed run keeps its labels except those that `labels` changes.
void add_run_start(const std::filesystem::path& path, const RunStart& start, const RunLabels& labels = {});

// A lock that reserves a run directory for one writer: a lock of an open file (F_OFD_SETLK) on RUN/run.lock.
// It is held for the lifetime of the object, and the kernel releases it if the process dies. Readers need no
// lock.
class RunLock {
 public:
  // Creates the directory if it is missing. Throws UsageError naming the process that holds the lock, and
  // Error if the directory or the file cannot be created. On a file system without locks, logs a warning
  // instead.
  explicit RunLock(std::filesystem::path run_directory);
  // Removes the file, and the directory if this object created it and it is empty.
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  // Returns whether a process holds the lock now, without acquiring it. On a file system without locks,
  // returns whether the file exists.
  static bool is_held(const std::filesystem::path& run_directory);

  static constexpr const char* file_name = "run.lock";

 private:
  bool try_open();

  std::filesystem::path directory_;
  bool made_directory_ = false;
  int descriptor_ = -1;
};

}  // namespace rondo
