#pragma once

#include <string>
#include <string_view>

#include "rondo/launch/console.h"
#include "rondo/launch/descriptor.h"

namespace rondo::launch {

// What comes out of one stream (standard output or error) of one worker: to the console with the rank before
// every line, raw to a log file, and the end of it kept for the failure report. One thread.
class WorkerOutput {
 public:
  struct Targets {
    Console* console = nullptr;  // null: not shown
    std::string prefix;          // "[rank 0] "
    Descriptor log_file;         // may be invalid
    std::string log_path;
  };

  // `source` is the reading end of the worker's pipe or pseudo-terminal.
  WorkerOutput(EventLoop& loop, Descriptor source, Targets targets);
  WorkerOutput(const WorkerOutput&) = delete;
  WorkerOutput& operator=(const WorkerOutput&) = delete;
  ~WorkerOutput();

  // Takes what is in the pipe now, however full the console is.
  void drain();
  // drain(), and then no more: the last line is shown even when it has no end.
  void close();
  // All writers have closed the stream (the last line has been shown), or nobody can read it any more.
  bool ended() const { return !source_.valid(); }
  // What came out of it is what the console showed last.
  bool shown_last() const { return targets_.console != nullptr && targets_.console->last_writer() == this; }
  // The last lines, at most `kTailBytes`.
  std::string_view tail() const { return tail_; }

  static constexpr std::size_t kTailBytes = 8192;

 private:
  enum class Read { some, nothing_now, end };
  Read read_some();
  void on_readable();
  void consume(std::string_view data);
  void show(std::string_view data);
  void show_line(std::string_view line);
  void write_log(std::string_view data);
  void keep_tail(std::string_view data);
  void finish();

  EventLoop& loop_;
  Descriptor source_;
  Targets targets_;
  std::string partial_;  // of a line whose end has not come yet
  std::string shown_;    // lines of one read, written together
  std::string tail_;
  std::size_t taken_ = 0;  // bytes read so far
  bool paused_ = false;
};

}  // namespace rondo::launch
