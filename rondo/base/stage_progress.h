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
  Duration bar_after = std::chrono::seconds(1);         // minimum length of a stage that is shown
  Duration bar_every = std::chrono::milliseconds(500);  // interval between two drawings on a terminal
  Duration line_after = std::chrono::seconds(4);        // interval between two lines elsewhere
  Duration lines_every = std::chrono::seconds(30);
};

// Shows a program's current stage and its duration if the stage takes long: on a terminal as a line that is
// redrawn, elsewhere as occasional lines. Uses its own thread, so that stages need no code in their loops.
// Erases a drawn line at the end of a stage. Any thread may call the functions.
class StageProgress {
 public:
  // `stream` is not owned and must outlive the object.
  explicit StageProgress(std::FILE* stream = stderr, const StageProgressOptions& options = {});
  ~StageProgress();
  StageProgress(const StageProgress&) = delete;
  StageProgress& operator=(const StageProgress&) = delete;

  // Begins a stage, such as "reading the data", and ends the previous one.
  void begin(std::string_view stage);
  // Sets the progress of the stage: "3 of 20 files". The remaining time is shown too.
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
  std::uint64_t number_ = 0;  // start of the stage
  bool stops_ = false;
  std::thread thread_;  // started by the first begin()
};

}  // namespace rondo
