#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "rondo/launch/descriptor.h"

namespace rondo::launch {

// The launcher's own standard output or error. Never blocks: output is buffered while the reader is slow, and
// producers are asked to pause. Single-threaded.
class Console {
 public:
  // Does not take ownership of `descriptor`.
  Console(EventLoop& loop, int descriptor);
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;
  ~Console();

  // Writes text; `writer` identifies its source.
  void write(std::string_view text, const void* writer);
  // Shows a line that is still being rewritten (a progress bar) in place of the previous one, as much of it
  // as fits. Terminals only.
  void write_unfinished(std::string_view text, const void* writer);
  // Returns the source of the last text; null before the first.
  const void* last_writer() const { return last_writer_; }
  // Returns whether this is a terminal that supports escape sequences.
  bool is_terminal() const { return is_terminal_; }
  // Returns the terminal's current number of columns.
  int columns() const;
  // Returns whether to use colours: such a terminal, without NO_COLOR.
  bool coloured() const { return coloured_; }
  // full() returns whether producers should pause. call_when_drained() calls `resume` once when there is
  // space again, unless forget() is called for its owner first. A paused writer that is destroyed must call
  // forget().
  bool full() const;
  void call_when_drained(const void* owner, std::function<void()> resume);
  void forget(const void* owner);
  // Returns whether output is impossible: the reader has closed its end, or the disk is full.
  bool broken() const { return broken_; }
  // Returns the errno of lost output; 0 if none was lost or the reader closed its end.
  int error() const { return error_; }
  bool drained() const { return broken_ || sent_ == pending_.size(); }

 private:
  void flush();
  void became_writable();

  EventLoop& loop_;
  int descriptor_;
  bool is_terminal_;
  bool coloured_;
  bool always_ready_;  // true for a regular file
  bool watching_ = false;
  bool broken_ = false;
  int error_ = 0;
  bool unfinished_line_ = false;
  const void* last_writer_ = nullptr;
  std::string pending_;
  std::size_t sent_ = 0;  // bytes of pending_ that are written
  struct Waiting {
    const void* owner;
    std::function<void()> resume;
  };
  std::vector<Waiting> waiting_;
};

// The output of one stream (standard output or error) of one worker. Copies it to the console with the rank
// before every line, unchanged to a log file, and keeps the end for the failure report. Single-threaded.
class WorkerOutput {
 public:
  struct Targets {
    Console* console = nullptr;  // null: not shown
    std::string prefix;          // "[rank 0] "
    Descriptor log_file;         // may be invalid
    std::string log_path;
  };

  // `source` is the read end of the worker's pipe or pseudo-terminal.
  WorkerOutput(EventLoop& loop, Descriptor source, Targets targets);
  WorkerOutput(const WorkerOutput&) = delete;
  WorkerOutput& operator=(const WorkerOutput&) = delete;
  ~WorkerOutput();

  // Reads all data that is in the pipe now, even if the console is full.
  void drain();
  // Calls drain() and stops reading. Shows the last line even if it is incomplete.
  void close();
  // Returns whether all writers have closed the stream (and the last line was shown) or no reader is left.
  bool ended() const { return !source_.valid(); }
  // Returns whether the console's last output came from this stream.
  bool shown_last() const { return targets_.console != nullptr && targets_.console->last_writer() == this; }
  // Returns the last output, up to 2 * kTailBytes.
  std::string_view tail() const { return tail_; }

  static constexpr std::size_t kTailBytes = 8192;

 private:
  enum class Read { some, nothing_now, end };
  Read read_some();
  void on_readable();
  void consume(std::string_view data);
  void show(std::string_view data);
  void show_line(std::string_view line);
  void show_unfinished();
  void write_log(std::string_view data);
  void keep_tail(std::string_view data);
  void finish();

  EventLoop& loop_;
  Descriptor source_;
  Targets targets_;
  std::string partial_;  // incomplete last line
  std::string shown_;    // lines of one read, written together
  std::string tail_;
  std::size_t taken_ = 0;  // bytes read so far
  bool paused_ = false;
  int columns_ = 0;  // width of the console when it last showed an unfinished line of this stream
};

}  // namespace rondo::launch
