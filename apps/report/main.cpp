#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/common/command_line.h"
#include "apps/common/flag_checks.h"
#include "apps/plan/answer.h"
#include "apps/report/page.h"
#include "rondo/base/error.h"
#include "rondo/base/file_access.h"
#include "rondo/base/text.h"
#include "rondo/cost/profile_json.h"
#include "rondo/cost/step_plan.h"
#include "rondo/format/file.h"
#include "rondo/format/report/curves.h"
#include "rondo/format/report/document.h"
#include "rondo/format/run_directory.h"
#include "rondo/plan/plan_file.h"

namespace rondo {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kLimits = 6;
constexpr Duration kSweepTime = std::chrono::seconds(3);

Json draw(const std::filesystem::path& plan_path, const std::filesystem::path& profile_path) {
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
Json planned_step(const std::filesystem::path& run_directory, std::vector<std::string>& notes) {
  const std::filesystem::path plan = run_directory / "plan.json";
  const std::filesystem::path profile = run_directory / "profile.json";
  if (!std::filesystem::exists(plan) || !std::filesystem::exists(profile)) return nullptr;
  try {
    return draw(plan, profile);
  } catch (const std::exception& e) {
    notes.push_back(str("The planned step cannot be drawn: ", e.what()));
    return nullptr;
  }
}

}  // namespace
}  // namespace rondo

namespace {

void compare(const std::vector<std::string>& directories, const std::string& output, const std::string& json,
             const std::vector<std::string>& words) {
  std::vector<rondo::RunData> runs;
  for (const std::string& directory : directories) runs.push_back(rondo::read_run(directory));
  nlohmann::ordered_json document = rondo::comparison_document(runs);
  document["made_by"] = to_json(rondo::make_provenance("rondo report", words));
  const std::filesystem::path path = output.empty() ? "comparison.html" : output;
  rondo::write_output(path, rondo::make_page(document));
  if (json != "-") {
    for (const auto& note : document["notes"])
      std::fprintf(stderr, "note: %s\n", rondo::shown(note.get<std::string>()).c_str());
    std::printf("%s\n", path.c_str());
  }
  nlohmann::ordered_json summary{{"report", path.string()}, {"runs", nlohmann::ordered_json::array()}};
  for (auto& run : document["comparison"]["runs"]) summary["runs"].push_back(std::move(run["summary"]));
  summary["differences"] = document["comparison"]["differences"];
  summary["notes"] = document["notes"];
  rondo::write_json(json, summary);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Write one self-contained HTML page about a run: curves, time, memory, timeline, configuration.",
      "rondo report");
  std::vector<std::string> directories;
  std::string output;
  std::string json;
  app.add_option("RUN_DIR", directories,
                 "run directory of a 'rondo train', finished or running; several are compared on one page")
      ->required();
  app.add_option("-o,--output", output,
                 "file to write; default: RUN_DIR/report.html, or comparison.html for several runs");
  app.add_option("--json", json, "write the run's figures to FILE, or '-' for standard output");
  app.footer(
      "The page needs no network and can be sent to others as it is; it names the run's host and command "
      "line.\n\nExamples:\n  rondo report runs/gpt                        # writes runs/gpt/report.html\n  "
      "rondo report runs/gpt -o gpt.html --json -   # also prints the figures as JSON\n  rondo report runs/a "
      "runs/b runs/c            # losses, speeds and differing settings, in comparison.html");
  return rondo::run_command_line(app, argc, argv, [&] {
    // After parsing, so that an unknown flag is reported before wrong arguments.
    for (const std::string& directory : directories) {
      if (const std::string fault = rondo::existing_path()(directory); !fault.empty())
        throw rondo::UsageError(rondo::str("RUN_DIR: ", fault));
    }
    if (directories.size() > 1) {
      compare(directories, output, json, std::vector<std::string>(argv + 1, argv + argc));
      return 0;
    }
    const rondo::RunData run = rondo::read_run(directories.front());
    nlohmann::ordered_json document = rondo::report_document(run);
    std::vector<std::string> notes;
    if (auto planned = rondo::planned_step(run.directory, notes); !planned.is_null())
      document["planned_step"] = std::move(planned);
    for (std::string& note : notes) document["notes"].push_back(std::move(note));
    document["made_by"] =
        to_json(rondo::make_provenance("rondo report", std::vector<std::string>(argv + 1, argv + argc)));
    const std::filesystem::path path =
        output.empty() ? run.directory / "report.html" : std::filesystem::path(output);
    rondo::write_output(path, rondo::make_page(document));
    nlohmann::ordered_json summary = document["summary"];
    summary["verdict"] = document["verdict"];
    summary["straggler"] = document["straggler"];
    summary["report"] = path.string();
    summary["notes"] = document["notes"];
    if (json != "-") {
      for (const auto& note : document["notes"])
        std::fprintf(stderr, "note: %s\n", rondo::shown(note.get<std::string>()).c_str());
      std::printf("%s\n", path.c_str());
    }
    rondo::write_json(json, summary);
    return 0;
  });
}
