#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "apps/common/command_line.h"
#include "apps/common/flag_checks.h"
#include "apps/plan/answer.h"
#include "apps/report/page.h"
#include "rondo/base/error.h"
#include "rondo/base/file_access.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"
#include "rondo/cost/profile_json.h"
#include "rondo/cost/step_plan.h"
#include "rondo/format/file.h"
#include "rondo/format/report/curves.h"
#include "rondo/format/report/document.h"
#include "rondo/format/run_directory.h"
#include "rondo/plan/plan_file.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kLimits = 6;
constexpr Duration kSweepTime = std::chrono::seconds(3);

Json draw(const fs::path& plan_path, const fs::path& profile_path) {
  const Json json = cost::read_plan_json(plan_path.string());
  cost::StepOptions options;
  options.ranks = json.at("ranks").get<int>();
  options.shard_group = json.value("shard_group", 0);
  options.micro_batches = json.value("micro_batches", 1);
  const cost::StepModel model = cost::make_step_model(cost::read_profile(profile_path.string()), options);
  plan::PlanResult answer;
  answer.plan = plan::plan_from_json(model, json, plan_path.string());
  answer.feasible = true;
  plan::PlannerOptions planner;
  planner.memory_limit = json.at("memory_limit_bytes").get<std::uint64_t>();
  planner.time_limit = kSweepTime;
  return planner_document(model, json, answer, planner.memory_limit, plan::sweep(model, planner, kLimits))
      .at("planner");
}

// Returns the predictions of a planned run for the page: the plan's summary, its simulated step, and step
// times of plans and baselines at limits around it (searched again, in about three seconds). Reads plan.json
// and profile.json in the run's directory. Returns null if they do not exist; if they cannot be read, returns
// null and adds a note.
Json planned_step(const fs::path& run_directory, std::vector<std::string>& notes) {
  const fs::path plan = run_directory / "plan.json";
  const fs::path profile = run_directory / "profile.json";
  if (!fs::exists(plan) || !fs::exists(profile)) return nullptr;
  try {
    return draw(plan, profile);
  } catch (const std::exception& e) {
    notes.push_back(str("The planned step cannot be drawn: ", e.what()));
    return nullptr;
  }
}

// Arguments of the program.
struct Request {
  std::vector<std::string> directories;
  std::string output;              // empty: the default
  std::vector<std::string> words;  // as given
};

// A page that is ready to be written, and its figures for --json.
struct Report {
  fs::path path;
  Json document;
  Json summary;
  bool is_running = false;  // whether one of the runs is in progress
};

Report compare_runs(const Request& request) {
  std::vector<RunData> runs;
  for (const std::string& directory : request.directories) runs.push_back(read_run(directory));
  Report report;
  report.path = request.output.empty() ? "comparison.html" : request.output;
  report.document = comparison_document(runs);
  report.summary = {{"report", report.path.string()}, {"runs", Json::array()}};
  for (const Json& run : report.document["comparison"]["runs"]) {
    Json summary = run["summary"];
    summary["labels"] = run["labels"];
    report.summary["runs"].push_back(std::move(summary));
  }
  report.summary["differences"] = report.document["comparison"]["differences"];
  report.summary["notes"] = report.document["notes"];
  report.is_running =
      std::any_of(runs.begin(), runs.end(), [](const RunData& run) { return run.is_running; });
  return report;
}

// `planned` keeps planned_step() between calls, which takes seconds.
Report report_run(const Request& request, std::optional<Json>& planned) {
  const RunData run = read_run(request.directories.front());
  Report report;
  report.path = request.output.empty() ? run.directory / "report.html" : fs::path(request.output);
  report.document = report_document(run);
  report.is_running = run.is_running;
  std::vector<std::string> notes;
  if (!planned) planned = planned_step(run.directory, notes);
  if (!planned->is_null()) report.document["planned_step"] = *planned;
  for (std::string& note : notes) report.document["notes"].push_back(std::move(note));
  report.summary = report.document["summary"];
  for (const char* part : {"labels", "verdict", "straggler", "notes"})
    report.summary[part] = report.document[part];
  report.summary["report"] = report.path.string();
  return report;
}

// Writes the page. With `interval` writes it again after each interval while a run is in progress; the
// page then loads itself again as often. Reading long runs takes at most a tenth of the time.
void write_reports(const Request& request, const std::string& json, std::optional<Duration> interval) {
  std::optional<Json> planned;
  for (bool is_first = true;; is_first = false) {
    const TimePoint began = Clock::now();
    Report report = request.directories.size() > 1 ? compare_runs(request) : report_run(request, planned);
    report.document["made_by"] = to_json(make_provenance("rondo report", request.words));
    const bool goes_on = interval && report.is_running;
    const Duration pause =
        goes_on ? std::max(*interval, 9 * std::chrono::duration_cast<Duration>(Clock::now() - began))
                : Duration::zero();
    if (goes_on) report.document["reload_s"] = std::chrono::duration<double>(pause).count();
    write_output(report.path, make_page(report.document));
    if (is_first && json != "-") std::printf("%s\n", report.path.c_str());
    std::fflush(stdout);
    if (!goes_on) {
      for (const Json& note : report.document["notes"])
        if (json != "-") std::fprintf(stderr, "note: %s\n", shown(note.get<std::string>()).c_str());
      write_json(json, report.summary);
      return;
    }
    std::this_thread::sleep_for(pause);
  }
}

// Throws UsageError for directories that do not exist or are the same.
void check_directories(const std::vector<std::string>& directories) {
  for (const std::string& directory : directories) {
    if (const std::string fault = existing_path()(directory); !fault.empty())
      throw UsageError(str("RUN_DIR: ", fault));
    for (const std::string& other : directories) {
      if (&other == &directory) break;
      if (fs::equivalent(directory, other))
        throw UsageError(str("RUN_DIR: ", other, " and ", directory, " are the same run; give each once"));
    }
  }
}

}  // namespace
}  // namespace rondo

int main(int argc, char** argv) {
  CLI::App app(
      "Write one self-contained HTML page about a run: curves, time, memory, timeline, configuration.",
      "rondo report");
  rondo::Request request;
  rondo::RunLabels labels;
  std::optional<std::string> tags;
  std::string json;
  std::string interval = "10s";
  bool watch = false;
  app.add_option("RUN_DIR", request.directories,
                 "run directory of a 'rondo train', finished or running; several are compared on one page")
      ->required();
  app.add_option("-o,--output", request.output,
                 "file to write; default: RUN_DIR/report.html, or comparison.html for several runs");
  app.add_option("--json", json, "write the run's figures to FILE, or '-' for standard output");
  app.add_flag("--watch", watch, "write the page again until the training ends; an open page follows");
  app.add_option("--interval", interval, "time between updates of --watch")->capture_default_str();
  app.add_option("--name", labels.name, "name the run, also for later reports; '' removes the name");
  app.add_option("--tags", tags, "tag the run, also for later reports, such as baseline,gpt; '' removes all");
  app.add_option("--notes", labels.notes, "add notes to the run, also for later reports; '' removes them");
  app.footer(
      "The page needs no network and can be sent to others as it is; it names the run's host and command "
      "line.\n\nExamples:\n  rondo report runs/gpt                        # writes runs/gpt/report.html\n  "
      "rondo report runs/gpt -o gpt.html --json -   # also prints the figures as JSON\n  rondo report runs/a "
      "runs/b runs/c            # losses, speeds and differing settings, in comparison.html\n  rondo report "
      "runs/gpt --name 'wide' --tags gpt,baseline\n  rondo report runs/gpt --watch                # a page "
      "that "
      "follows the training");
  return rondo::run_command_line(app, argc, argv, [&] {
    // After parsing, so that an unknown flag is reported before wrong arguments.
    rondo::check_directories(request.directories);
    const rondo::Duration pause = rondo::parse_duration(interval, "--interval");
    if (pause < std::chrono::seconds(1)) throw rondo::UsageError("--interval must be at least 1s");
    if (tags) labels.tags = rondo::split(*tags, ',');
    if (labels.name || labels.tags || labels.notes) {
      if (request.directories.size() > 1)
        throw rondo::UsageError("--name, --tags and --notes are for one RUN_DIR");
      rondo::check_run_directory(request.directories.front());
      rondo::change_run_labels(std::filesystem::path(request.directories.front()) / "run.json", labels);
    }
    request.words.assign(argv + 1, argv + argc);
    rondo::write_reports(request, json, watch ? std::optional(pause) : std::nullopt);
    return 0;
  });
}
