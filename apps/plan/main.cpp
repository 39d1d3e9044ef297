// `rondo plan`: the best plan for a memory limit.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/common/command_line.h"
#include "apps/common/flag_checks.h"
#include "apps/plan/answer.h"
#include "apps/plan/inputs.h"
#include "apps/report/page.h"
#include "rondo/base/bytes.h"
#include "rondo/base/error.h"
#include "rondo/base/file_access.h"
#include "rondo/base/progress_line.h"
#include "rondo/base/stage_progress.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"
#include "rondo/cost/profile_json.h"
#include "rondo/format/file.h"
#include "rondo/format/run_directory.h"
#include "rondo/parallel/declared_strategies_options.h"
#include "rondo/plan/mesh/mesh_plan.h"
#include "rondo/plan/plan_file.h"

namespace {

using Json = nlohmann::ordered_json;
using rondo::str;
using rondo::UsageError;

// Least time for the explanations, after the time limit.
constexpr auto kExplaining = std::chrono::milliseconds(500);

struct Flags {
  rondo::PlanningInputs inputs;
  std::string memory_limit;
  std::string mesh;
  std::string meshes = "data";
  std::uint64_t global_batch_size = 0;
  std::string objective = "step-time";
  std::string time_limit = "60s";
  double gap = 1e-3;
  std::string solver = "highs";
  int random = 0;
  std::uint64_t seed = 0;
  int sweep = 0;
  bool max_batch = false;
  bool quiet = false;
  std::string json;
  std::string plan_out;
  std::string html;
  std::string fsdp2;
  std::string mps;
  std::string profile_out;
  std::vector<std::string> arguments;  // this program's command line
};

void add_flags(CLI::App& app, Flags& f) {
  add_planning_flags(app, f.inputs);
  app.add_option("--memory-limit", f.memory_limit, "memory limit of each rank, such as 2GiB")
      ->type_name("SIZE")
      ->required();
  const std::string search = "Search";
  app.add_option(
         "--plan-search", f.meshes,
         "dimensions to search: data only (default), or all: also pipeline, divided layers, shard groups")
      ->type_name("data|all")
      ->check(CLI::IsMember({"data", "all"}))
      ->group(search);
  app.add_option("--mesh", f.mesh, "plan for this mesh only, such as pipeline=2,data=4")
      ->type_name("MESH")
      ->group(search);
  app.add_option("--global-batch-size", f.global_batch_size,
                 "samples per step for every mesh; default: the profile's batch on each rank")
      ->type_name("N")
      ->check(rondo::positive_number())
      ->group(search);
  app.add_option("--objective", f.objective, "step-time (default) or overlap (docs/planner/search.md)")
      ->type_name("NAME")
      ->group(search);
  app.add_option("--plan-time-limit", f.time_limit,
                 "time limit of the search, which then returns the best plan so far; default 60s")
      ->type_name("TIME")
      ->group(search);
  app.add_option("--gap", f.gap, "relative optimality gap at which the search stops; default 0.001")
      ->type_name("SHARE")
      ->check(rondo::between(0.0, 1.0))
      ->group(search);
  app.add_option("--solver", f.solver, "highs, or none for the heuristic planner")
      ->type_name("NAME")
      ->group(search);
  const std::string more = "Further results";
  app.add_option("--sweep", f.sweep,
                 "also plan for N memory limits between the smallest feasible and the largest relevant one")
      ->type_name("N")
      ->check(rondo::between(2, 1000))
      ->group(more);
  app.add_option("--random", f.random, "also evaluate N random valid plans and rank this plan among them")
      ->type_name("N")
      ->check(rondo::between(1, 1000000))
      ->group(more);
  app.add_option("--seed", f.seed, "seed of --random")
      ->type_name("N")
      ->check(rondo::not_negative_number())
      ->group(more);
  app.add_flag("--max-batch", f.max_batch,
               "instead of a plan, find the largest batch that fits, per strategy")
      ->group(more);
  const std::string output = "Output";
  app.add_option("--json", f.json, "write the result as JSON; '-': to standard output, without the table")
      ->type_name("FILE")
      ->group(output);
  app.add_option("--plan-out", f.plan_out, "write the plan for 'rondo train --plan' and 'rondo simulate'")
      ->type_name("FILE")
      ->group(output);
  app.add_option("--html", f.html, "write an HTML page with drawings")->type_name("FILE")->group(output);
  app.add_option("--fsdp2", f.fsdp2, "write the plan as JSON for PyTorch's FSDP2")
      ->type_name("FILE")
      ->group(output);
  app.add_option("--write-mps", f.mps, "write the integer program as an MPS file")
      ->type_name("FILE")
      ->group(output);
  app.add_option("--write-profile", f.profile_out, "write the profile that the plan was made for")
      ->type_name("FILE")
      ->group(output);
  app.add_flag("--quiet", f.quiet, "no progress on standard error")->group(output);
}

rondo::plan::PlannerOptions planner_options(const Flags& f, const rondo::CancelToken& cancel) {
  rondo::plan::PlannerOptions options;
  options.memory_limit = rondo::parse_bytes(f.memory_limit, "--memory-limit").count;
  options.time_limit = rondo::parse_duration(f.time_limit, "--plan-time-limit");
  options.target_gap = f.gap;
  options.cancel = &cancel;
  if (f.objective == "overlap") {
    options.objective = rondo::plan::Objective::overlap;
  } else if (f.objective != "step-time") {
    throw UsageError(str("--objective ", f.objective, " is not one of step-time, overlap"));
  }
  if (f.solver != "highs" && f.solver != "none")
    throw UsageError(str("--solver ", f.solver, " is not one of highs, none"));
  options.use_solver = f.solver == "highs";
  if (!f.quiet) {
    options.progress = [](const std::string& text) { rondo::print_message(rondo::shown(text)); };
  }
  return options;
}

// Compares the plan with the step times of N random plans.
Json compare_with_random(const rondo::cost::StepModel& model, const rondo::plan::PlanResult& answer,
                         const Flags& f, std::uint64_t limit, const rondo::CancelToken& cancel,
                         rondo::StageProgress& stage) {
  std::vector<double> times;
  int unfit = 0;
  int drawn = 0;
  for (; drawn < f.random && !cancel.cancelled(); ++drawn) {
    stage.update(drawn, f.random, "plans");
    const auto plan = rondo::plan::random_plan(model, f.seed, static_cast<std::uint64_t>(drawn), limit);
    const auto result = rondo::simulate::simulate_step(model, plan, limit);
    result.fits ? times.push_back(result.step_s * 1e3) : static_cast<void>(++unfit);
  }
  std::sort(times.begin(), times.end());
  Json json{{"plans", drawn}, {"seed", f.seed}, {"do_not_fit", unfit}};
  if (times.empty()) return json;
  const auto at = [&](double share) {
    return times[static_cast<std::size_t>(share * static_cast<double>(times.size() - 1))];
  };
  json["step_ms"] = {
      {"min", times.front()}, {"p10", at(0.1)}, {"p50", at(0.5)}, {"p90", at(0.9)}, {"max", times.back()}};
  // Ignores rounding: equal plans sum the same times in different orders.
  const double faster = answer.result.step_s * 1e3 * (1 - 1e-9);
  json["faster_than_plan"] = std::lower_bound(times.begin(), times.end(), faster) - times.begin();
  return json;
}

int answer_max_batch(const Flags& f, const rondo::cost::Profile& profile, std::uint64_t limit,
                     rondo::StageProgress& stage) {
  Json batches = Json::array();
  const auto largest = rondo::plan::largest_batches(profile, step_options(f.inputs), limit);
  stage.end();
  if (f.json != "-") std::printf("%-30s %12s %16s\n", "strategy", "batch", "samples/s a rank");
  for (const auto& b : largest) {
    if (f.json != "-")
      std::printf("%-30s %12llu %16.2f\n", b.strategy.c_str(), static_cast<unsigned long long>(b.batch),
                  b.samples_per_s);
    batches.push_back({{"strategy", b.strategy}, {"batch", b.batch}, {"samples_per_s", b.samples_per_s}});
  }
  rondo::write_json(f.json, {{"memory_limit_bytes", limit},
                             {"ranks", f.inputs.options.ranks},
                             {"profile_batch_size", profile.batch_size},
                             {"batches", std::move(batches)}});
  return 0;
}

void write_files(const Flags& f, const rondo::cost::StepModel& model, const rondo::plan::PlanResult& answer,
                 const rondo::plan::PlannerOptions& options, const Json& json,
                 const std::vector<rondo::plan::SweepPoint>& sweep) {
  if (!f.plan_out.empty()) rondo::write_output(f.plan_out, json.dump(1) + "\n");
  if (!f.fsdp2.empty())
    rondo::write_output(f.fsdp2, rondo::plan::to_fsdp2(model, answer.plan).dump(2) + "\n");
  if (!f.profile_out.empty())
    rondo::write_output(f.profile_out, rondo::cost::to_json(model.profile).dump(2) + "\n");
  if (!f.mps.empty()) {
    const rondo::plan::Formulation formulation(model, options.memory_limit, options.objective, true);
    rondo::write_output(f.mps, rondo::plan::to_mps(formulation.program()));
  }
  if (!f.html.empty()) {
    Json document = rondo::planner_document(model, json, answer, options.memory_limit, sweep);
    document["made_by"] = to_json(rondo::make_provenance("rondo plan", f.arguments));
    rondo::write_output(f.html, rondo::make_page(document));
  }
}

bool is_for_meshes(const Flags& f) { return f.meshes == "all" || !f.mesh.empty(); }

// Rejects flags that only plans along data support.
void refuse_with_meshes(const Flags& f) {
  const std::pair<const char*, bool> others[] = {{"--sweep", f.sweep > 0},
                                                 {"--random", f.random > 0},
                                                 {"--max-batch", f.max_batch},
                                                 {"--html", !f.html.empty()},
                                                 {"--fsdp2", !f.fsdp2.empty()},
                                                 {"--write-mps", !f.mps.empty()},
                                                 {"--objective", f.objective != "step-time"}};
  for (const auto& [flag, is_given] : others) {
    if (is_given)
      throw UsageError(str(flag,
                           " applies to plans along dimension data only: leave it out, or leave out --mesh "
                           "and --plan-search"));
  }
}

int plan_meshes(const Flags& f, const rondo::cost::Profile& profile,
                const rondo::plan::PlannerOptions& options, rondo::StageProgress& stage) {
  refuse_with_meshes(f);
  rondo::plan::MeshSearch search;
  search.samples = f.global_batch_size;
  search.micro_batches = f.inputs.micro_batches;
  if (!f.mesh.empty()) search.mesh = rondo::parse_mesh(f.mesh, "--mesh");
  search.refusal = [](const rondo::Mesh& mesh) { return rondo::mesh_refusal(mesh, "planned"); };
  const auto step = step_options(f.inputs);
  const rondo::plan::MeshPlan plan = rondo::plan::plan_mesh(profile, step, options, search);
  stage.end();
  const Json json = mesh_plan_to_json(profile, step, plan, options);
  if (f.json != "-") rondo::print_meshes(plan, options.memory_limit);
  if (!f.plan_out.empty()) rondo::write_output(f.plan_out, json.dump(1) + "\n");
  if (!f.profile_out.empty())
    rondo::write_output(f.profile_out, rondo::cost::to_json(profile).dump(2) + "\n");
  rondo::write_json(f.json, json);
  if (plan.best().fits) return 0;
  rondo::print_error("rondo plan",
                     str("--memory-limit ", f.memory_limit, " is infeasible: the mesh that needs least, ",
                         plan.best().name(), ", ", plan.best().why));
  return static_cast<int>(rondo::ExitCode::failed);
}

int run(const Flags& f) {
  const rondo::InterruptWatch interrupt;
  const auto options = planner_options(f, interrupt.token());
  const rondo::cost::Profile profile = load_profile(f.inputs);
  rondo::StageProgress stage(
      stderr, {.style = f.quiet ? rondo::ProgressStyle::off : rondo::ProgressStyle::automatic});
  stage.begin(rondo::str("searching, for ", f.time_limit, " at most"));
  if (is_for_meshes(f)) return plan_meshes(f, profile, options, stage);
  if (f.global_batch_size > 0)
    throw UsageError(
        "--global-batch-size needs --mesh or --plan-search all: plans along dimension data take the batch "
        "size from the profile");
  if (f.inputs.micro_batches > 0)
    throw UsageError(
        "--micro-batches needs --mesh or --plan-search all, because only pipelines have micro-batches; use "
        "--gradient-accumulation-steps for several passes per step");
  if (f.max_batch) return answer_max_batch(f, profile, options.memory_limit, stage);
  const auto model = rondo::cost::make_step_model(profile, step_options(f.inputs));
  const rondo::plan::PlanResult answer = rondo::plan::make_plan(model, options);
  const auto explanation = rondo::plan::explain(
      model, answer, options.memory_limit,
      {rondo::Deadline::after(std::max<rondo::Duration>(options.time_limit / 10, kExplaining)),
       options.cancel});
  Json json = rondo::plan::plan_to_json(model, answer, explanation, options);
  std::vector<rondo::plan::SweepPoint> sweep;
  if (f.sweep > 0) {
    auto quiet = options;
    quiet.progress = nullptr;
    stage.begin(rondo::str("planning for ", f.sweep, " memory limits"));
    sweep = rondo::plan::sweep(model, quiet, f.sweep);
    json["sweep"] = rondo::sweep_to_json(sweep);
  }
  if (f.random > 0) {
    stage.begin("drawing random plans");
    json["random"] = compare_with_random(model, answer, f, options.memory_limit, *options.cancel, stage);
  }
  stage.end();
  if (f.json != "-") {
    rondo::print_answer(model, answer, explanation, options.memory_limit);
    if (!sweep.empty()) rondo::print_sweep(sweep);
    if (json.contains("random")) std::printf("\nrandom plans: %s\n", json["random"].dump().c_str());
  }
  write_files(f, model, answer, options, json, sweep);
  rondo::write_json(f.json, json);
  if (!answer.feasible) {
    rondo::print_error("rondo plan",
                       str("--memory-limit ", f.memory_limit, " is infeasible: ", explanation.binding));
    return static_cast<int>(rondo::ExitCode::failed);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Find the strategy per unit and the launch slot per segment that make a step fastest within a memory "
      "limit.",
      "rondo plan");
  Flags flags;
  flags.arguments.assign(argv + 1, argv + argc);
  add_flags(app, flags);
  app.footer(
      "Examples:\n  rondo plan profile.json --memory-limit 500MiB --ranks 2 --plan-out plan.json\n  rondo "
      "plan --synthetic gpt:layers=48,dim=4096 --ranks 16 --memory-limit 25GiB --html plan.html --sweep 8\n  "
      "rondo plan profile.json --memory-limit 2GiB --ranks 2 --random 1000 --seed 7 --json -\n  rondo plan "
      "profile.json --memory-limit 2GiB --ranks 2 --max-batch\n  rondo plan --synthetic "
      "gpt:layers=48,dim=4096,batch=8 --ranks 64 --memory-limit 40GiB --plan-search all\n  rondo plan "
      "profile.json --memory-limit 2GiB --ranks 2 --fsdp2 fsdp2.json --write-mps plan.mps\n\nExit code 1 "
      "when no plan fits the limit; the message names the smallest feasible limit.");
  return rondo::run_command_line(app, argc, argv, [&] { return run(flags); });
}
