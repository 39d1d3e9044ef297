#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include "rondo/base/progress_line.h"
#include "rondo/base/time.h"

namespace rondo {

struct ProgressOptions {
  ProgressStyle style = ProgressStyle::automatic;
  std::int64_t total_steps = 0;
  std::int64_t first_step = 0;                             // steps done before (a resumed run)
  std::int64_t line_every_steps = 10;                      // minimum number of steps between two lines ...
  Duration line_every = std::chrono::seconds(1);           // ... and minimum time between them
  Duration line_at_most_after = std::chrono::seconds(30);  // a line is due even after fewer steps
  Duration redraw_every = std::chrono::milliseconds(100);
  Duration activity_every =
      std::chrono::seconds(2);  // minimum interval between lines about activities between steps
};

// Values of a step to show.
struct ProgressUpdate {
  std::int64_t step = 0;  // steps done, this one included
  double epoch = 0;       // epochs done, with the fraction of the current one
  double loss = 0;
  double learning_rate = 0;
  double rate = 0;  // samples or tokens per second, over all ranks
  std::string_view unit = "samples";
};

// Shows the progress of training: on a terminal one line that is redrawn, in a log occasional plain lines.
// Only one rank of a job should have one. One thread uses an object.
class Progress {
 public:
  // `stream` is not owned and must outlive the object.
  Progress(std::FILE* stream, const ProgressOptions& options);
  // Calls finish().
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(const ProgressUpdate& update);
  // Prints a separate line ("validation loss 1.234") above the bar. Does nothing if the style is off.
  void note(std::string_view text);
  // Shows an activity between steps, such as "validation: 3 of 20 batches", in place of the bar (abridged on
  // a narrow terminal) or as an occasional line. Shows nothing if the style is off. The next update()
  // replaces it.
  void activity(std::string_view what, std::int64_t done, std::int64_t of, std::string_view unit);
  // Ends the bar's line, which keeps showing the last step.
  void finish();

 private:
  void draw_bar(const ProgressUpdate& update);
  void print_line(const ProgressUpdate& update);
  // Returns "left 4:05", after the last step "took 1:02:03".
  std::string time_text(std::int64_t step) const;

  ProgressOptions options_;
  ProgressLine line_;
  TimePoint started_;
  std::optional<TimePoint> last_shown_;
  std::optional<TimePoint> activity_shown_;
  std::int64_t last_shown_step_;
  ProgressUpdate last_drawn_;  // by draw_bar()
  std::string unit_of_last_;
};

// Returns the smoothed throughput to show after a step with `rate`, since single steps vary too much. `shown`
// is the previous result, 0 at first.
double smoothed_rate(double shown, double rate);

// Returns the estimated time for `remaining` units of work if `done` units took `elapsed`.
Duration expected_time(Duration elapsed, std::int64_t done, std::int64_t remaining);

// Returns hours, minutes and seconds for people: "1:02:03", "4:05".
std::string format_clock_time(Duration duration);

}  // namespace rondo
