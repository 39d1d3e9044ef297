#include "rondo/base/progress.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <set>
#include <string>
#include <thread>

#include "rondo/base/error.h"
#include "rondo/base/stage_progress.h"

namespace rondo::progress_test {
namespace {

// Returns the text that a Progress wrote to its stream.
class Recorder {
 public:
  Recorder() : stream_(open_memstream(&text_, &size_)) {}
  ~Recorder() {
    std::fclose(stream_);
    std::free(text_);
  }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;
  std::FILE* stream() { return stream_; }
  std::string text() {
    std::fflush(stream_);
    return {text_, size_};
  }

 private:
  char* text_ = nullptr;
  std::size_t size_ = 0;
  std::FILE* stream_;
};

ProgressUpdate at_step(std::int64_t step) {
  return {.step = step, .epoch = 0.5, .loss = 2.25, .learning_rate = 1e-3, .rate = 12345, .unit = "tokens"};
}

TEST(Progress, LinesInALogShowEverything) {
  Recorder recorder;
  {
    Progress progress(recorder.stream(), {.style = ProgressStyle::automatic, .total_steps = 10});
    progress.update(at_step(5));
  }
  const std::string text = recorder.text();
  EXPECT_EQ(text.find("step 5/10  epoch 0.50  loss 2.2500  12.3k tokens/s  lr 1.00e-03  left "), 0U) << text;
  EXPECT_EQ(text.find('\r'), std::string::npos);
}

TEST(Progress, LinesAreSpacedButTheLastIsPrinted) {
  Recorder recorder;
  Progress progress(recorder.stream(), {.style = ProgressStyle::lines,
                                        .total_steps = 100,
                                        .line_every_steps = 30,
                                        .line_every = Duration::zero()});
  for (int step = 1; step <= 100; ++step) progress.update(at_step(step));
  const std::string text = recorder.text();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 5) << text;  // 1, 31, 61, 91, 100
  EXPECT_NE(text.find("step 100/100"), std::string::npos);
}

TEST(Progress, BarIsOneLineThatNotesPushUp) {
  Recorder recorder;
  {
    Progress progress(recorder.stream(),
                      {.style = ProgressStyle::bar, .total_steps = 4, .redraw_every = Duration::zero()});
    progress.update(at_step(2));
    progress.note("validation loss 1.5");
    progress.update(at_step(4));
  }
  const std::string text = recorder.text();
  EXPECT_NE(text.find("\r\033[Kvalidation loss 1.5\n\r"), std::string::npos) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);  // the note, and the end of the bar
  EXPECT_NE(text.find("loss 2.2500"), std::string::npos);
}

// Returns what a terminal with that many columns shows of a bar drawn by `draw`.
std::string shown_on(const char* columns, const std::function<void(Progress&)>& draw) {
  setenv("RONDO_TERMINAL_WIDTH", columns, 1);
  Recorder recorder;
  {
    Progress progress(recorder.stream(),
                      {.style = ProgressStyle::bar, .total_steps = 10, .redraw_every = Duration::zero()});
    draw(progress);
  }
  unsetenv("RONDO_TERMINAL_WIDTH");
  std::string text = recorder.text();
  EXPECT_TRUE(text.starts_with('\r') && text.ends_with("\033[K\n")) << text;
  return text.substr(1, text.size() - 5);
}

std::string bar_on(const char* columns) {
  return shown_on(columns, [](Progress& progress) { progress.update(at_step(5)); });
}

std::string activity_on(const char* columns, std::int64_t done, std::int64_t of) {
  return shown_on(columns, [&](Progress& progress) { progress.activity("validation", done, of, "batches"); });
}

TEST(Progress, NarrowTerminalsGetFewerFiguresButWholeOnes) {
  const std::set<std::string> whole = {"5/10", "loss 2.2500", "12.3k tokens/s", "lr 1.00e-03", "left 0:00"};
  for (const char* columns : {"20", "24", "30", "40", "50", "60", "80", "200"}) {
    std::string shown = bar_on(columns);
    EXPECT_LT(shown.size(), std::stoul(columns)) << shown;
    if (const std::size_t bar = shown.find("] "); bar != std::string::npos) shown.erase(0, bar + 2);
    std::size_t figures = 0;
    while (!shown.empty()) {
      const std::size_t end = std::min(shown.find("  "), shown.size());
      EXPECT_TRUE(whole.contains(shown.substr(0, end))) << columns << " columns: " << shown;
      shown.erase(0, end == shown.size() ? end : end + 2);
      ++figures;
    }
    EXPECT_GE(figures, 2U) << columns;
    if (std::stoul(columns) >= 60) {
      EXPECT_EQ(figures, 5U);
    }
  }
  EXPECT_EQ(bar_on("30"), "5/10  loss 2.2500  left 0:00");
  EXPECT_EQ(bar_on("200").substr(0, 6), "[=====");
}

TEST(Progress, NarrowTerminalsShortenActivitiesNotNumbers) {
  for (const char* columns : {"32", "40", "80", "200"}) {
    EXPECT_EQ(activity_on(columns, 123, 4567), "validation: 123 of 4567 batches");
  }
  for (const char* columns : {"24", "30", "31"}) {
    EXPECT_EQ(activity_on(columns, 123, 4567), "validation: 123 of 4567");
  }
  EXPECT_EQ(activity_on("20", 123, 4567), "validation 123/4567");
  EXPECT_EQ(activity_on("20", 12345, 45678), "validation");
  EXPECT_EQ(activity_on("20", 1, 9), "validation: 1 of 9");
}

TEST(Progress, ALogHasWholeLinesOfAnActivity) {
  Recorder recorder;
  Progress progress(recorder.stream(),
                    {.style = ProgressStyle::lines, .total_steps = 10, .activity_every = Duration::zero()});
  progress.activity("validation", 123, 4567, "batches");
  EXPECT_EQ(recorder.text(), "validation: 123 of 4567 batches\n");
}

TEST(Progress, LogHasALinePerSlowStep) {
  Recorder recorder;
  Progress progress(recorder.stream(), {.style = ProgressStyle::lines,
                                        .total_steps = 100,
                                        .line_every_steps = 30,
                                        .line_every = Duration::zero(),
                                        .line_at_most_after = Duration::zero()});
  for (int step = 1; step <= 5; ++step) progress.update(at_step(step));
  const std::string text = recorder.text();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 5) << text;
}

TEST(Progress, BarEndsWithTheLastStep) {
  const auto shown = [](bool notes) {
    return shown_on("80", [&](Progress& progress) {
      progress.update(at_step(10));
      progress.activity("validation", 1, 2, "batches");
      if (notes) progress.note("validation loss 1.5");
    });
  };
  for (const bool notes : {false, true}) {
    const std::string text = shown(notes);
    EXPECT_GT(text.rfind("10/10"), text.rfind("validation: 1 of 2")) << text;
    EXPECT_NE(text.find("took 0:00"), std::string::npos) << text;
  }
}

TEST(ProgressLine, KeepsAndRemovesWhatItDrew) {
  Recorder recorder;
  ProgressLine line(recorder.stream(), ProgressStyle::bar);
  line.keep();
  line.clear();
  EXPECT_EQ(recorder.text(), "");
  line.show({"first"});
  line.clear();
  line.clear();
  EXPECT_EQ(recorder.text(), "\rfirst\033[K\r\033[K");
  line.show({"second"});
  line.keep();
  EXPECT_TRUE(recorder.text().ends_with("\rsecond\033[K\n"));
}

// Returns the text of a stream that another thread writes to.
class SharedRecorder {
 public:
  SharedRecorder() : stream_(std::tmpfile()) {}
  ~SharedRecorder() { std::fclose(stream_); }
  SharedRecorder(const SharedRecorder&) = delete;
  SharedRecorder& operator=(const SharedRecorder&) = delete;
  std::FILE* stream() { return stream_; }
  std::string text() const {
    std::string text(1U << 20, '\0');
    const ssize_t size = pread(fileno(stream_), text.data(), text.size(), 0);
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(0, size)));
    return text;
  }
  void wait_for(const std::string& part) const {
    const Deadline deadline = Deadline::after(std::chrono::seconds(60));
    while (text().find(part) == std::string::npos && !deadline.passed())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_NE(text().find(part), std::string::npos);
  }

 private:
  std::FILE* stream_;
};

StageProgressOptions quick_stages(ProgressStyle style) {
  return {.style = style,
          .bar_after = Duration::zero(),
          .bar_every = std::chrono::milliseconds(1),
          .line_after = Duration::zero(),
          .lines_every = std::chrono::milliseconds(1)};
}

TEST(StageProgress, ShowsTheStageAndRemovesItsLine) {
  SharedRecorder recorder;
  {
    StageProgress stages(recorder.stream(), quick_stages(ProgressStyle::bar));
    stages.begin("reading the data");
    recorder.wait_for("\rreading the data: 0:00\033[K");
    stages.update(3, 20, "files");
    recorder.wait_for("\rreading the data: 3 of 20 files  0:0");
    recorder.wait_for("  left 0:0");
    stages.begin("building the model");
    recorder.wait_for("\r\033[K\rbuilding the model: 0:00\033[K");
  }
  EXPECT_TRUE(recorder.text().ends_with("\r\033[K"));
}

TEST(StageProgress, ALogHasWholeLinesAndOffNothing) {
  SharedRecorder log;
  StageProgress stages(log.stream(), quick_stages(ProgressStyle::lines));
  stages.begin("reading the data");
  log.wait_for("reading the data: 0:00\n");
  stages.end();
  EXPECT_EQ(log.text().find('\r'), std::string::npos);
  SharedRecorder silent;
  StageProgress off(silent.stream(), quick_stages(ProgressStyle::off));
  off.begin("reading the data");
  off.end();
  EXPECT_EQ(silent.text(), "");
}

TEST(StageProgress, ShortStagesShowNothing) {
  Recorder recorder;
  {
    StageProgress stages(recorder.stream(),
                         {.style = ProgressStyle::bar, .bar_after = std::chrono::hours(1)});
    stages.begin("reading the data");
    stages.begin("building the model");
  }
  EXPECT_EQ(recorder.text(), "");
}

TEST(Progress, OffIsSilent) {
  Recorder recorder;
  Progress progress(recorder.stream(), {.style = ProgressStyle::off, .total_steps = 4});
  progress.update(at_step(4));
  progress.note("x");
  EXPECT_EQ(recorder.text(), "");
}

TEST(Progress, ClockTimeAndStyles) {
  EXPECT_EQ(format_clock_time(std::chrono::seconds(65)), "1:05");
  EXPECT_EQ(format_clock_time(std::chrono::seconds(3723)), "1:02:03");
  EXPECT_EQ(parse_progress_style("bar"), ProgressStyle::bar);
  EXPECT_THROW(parse_progress_style("fancy"), UsageError);
}

}  // namespace
}  // namespace rondo::progress_test
