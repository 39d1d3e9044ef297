#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "rondo/launch/descriptor.h"

namespace rondo::launch {

// The launcher's own standard output or error. Never blocks: what the reader does not take yet is kept, and
// whoever produces it is asked to pause. One thread.
class Console {
 public:
  // `descriptor` stays the caller's.
  Console(EventLoop& loop, int descriptor);
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;
  ~Console();

  // `writer` is whose text it is.
  void write(std::string_view text, const void* writer);
  // A line that is still being rewritten (a progress bar): shown in place of the last one. Terminals only.
  void write_unfinished(std::string_view text, const void* writer);
  // Whose text came last; null before the first.
  const void* last_writer() const { return last_writer_; }
  // One that understands escape sequences.
  bool is_terminal() const { return is_terminal_; }
  // Whether to use colours: such a terminal, and NO_COLOR is not set.
  bool coloured() const { return coloured_; }
  // So much is waiting that producers should pause. `resume` is called once when there is room again, unless
  // its owner has forgotten it before: a writer that goes away while it pauses must.
  bool full() const;
  void call_when_drained(const void* owner, std::function<void()> resume);
  void forget(const void* owner);
  // Nothing more can be written: the reader has closed its end, or the disk is full.
  bool broken() const { return broken_; }
  // Why output was lost, as errno; 0 when none was, or when only the reader has left.
  int error() const { return error_; }
  bool drained() const { return broken_ || sent_ == pending_.size(); }

 private:
  void flush();
  void became_writable();

  EventLoop& loop_;
  int descriptor_;
  bool is_terminal_;
  bool coloured_;
  bool always_ready_;  // a regular file
  bool watching_ = false;
  bool broken_ = false;
  int error_ = 0;
  bool unfinished_line_ = false;
  const void* last_writer_ = nullptr;
  std::string pending_;
  std::size_t sent_ = 0;  // of pending_
  struct Waiting {
    const void* owner;
    std::function<void()> resume;
  };
  std::vector<Waiting> waiting_;
};

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
