#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "rondo/launch/event_loop.h"

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

}  // namespace rondo::launch
