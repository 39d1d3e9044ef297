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

  void write(std::string_view text);
  // A line that is still being rewritten (a progress bar): shown in place of the last one. Terminals only.
  void write_unfinished(std::string_view text);
  bool is_terminal() const { return is_terminal_; }
  // Whether to use colours: a terminal, and NO_COLOR is not set.
  bool coloured() const { return coloured_; }
  // So much is waiting that producers should pause; `resume` is called once when there is room again.
  bool full() const;
  void call_when_drained(std::function<void()> resume) { waiting_.push_back(std::move(resume)); }
  // The reader has closed its end.
  bool broken() const { return broken_; }
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
  bool unfinished_line_ = false;
  std::string pending_;
  std::size_t sent_ = 0;  // of pending_
  std::vector<std::function<void()>> waiting_;
};

}  // namespace rondo::launch
