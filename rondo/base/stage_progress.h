#pragma once

#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "rondo/base/progress_line.h"
#include "rondo/base/time.h"

namespace rondo {

struct StageProgressOptions {
  ProgressStyle style = ProgressStyle::automatic;
  Duration bar_after = std::chrono::seconds(1);         // a shorter stage shows nothing
  Duration bar_every = std::chrono::milliseconds(500);  // between two drawings
  Duration line_after = std::chrono::seconds(4);        // the same for lines
  Duration lines_every = std::chrono::seconds(30);
};

// Says which stage a program is in, and since when, while a stage lasts long: on a terminal a line that is
// redrawn, elsewhere a line now and then. A thread of its own does it, so that a stage needs no code in its
// loops. At the end of a stage a drawn line disappears. Any thread may call the functions.
class StageProgress {
 public:
  // `stream` is not owned and must outlive the object.
  explicit StageProgress(std::FILE* stream = stderr, const StageProgressOptions& options = {});
  ~StageProgress();
  StageProgress(const StageProgress&) = delete;
  StageProgress& operator=(const StageProgress&) = delete;

  // Begins a stage, such as "reading the data", and ends the previous one.
  void begin(std::string_view stage);
  // Sets how much of the stage is done: "3 of 20 files". The time left is shown too.
  void update(std::int64_t done, std::int64_t of, std::string_view unit);
  void end();

 private:
  void run();
  std::string text(TimePoint now) const;

  StageProgressOptions options_;
  std::mutex mutex_;  // protects all below
  std::condition_variable changed_;
  ProgressLine line_;
  std::string stage_;  // empty: none
  TimePoint begun_;
  std::int64_t done_ = 0, of_ = 0;
  std::string unit_;
  std::uint64_t number_ = 0;  // of the stage
  bool stops_ = false;
  std::thread thread_;  // started by the first begin()
};

}  // namespace rondo
