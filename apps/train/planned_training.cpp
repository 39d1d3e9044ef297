#include "apps/train/planned_training.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>

#include "rondo/backend/collectives.h"
#include "rondo/base/bytes.h"
#include "rondo/base/error.h"
#include "rondo/base/log.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"
#include "rondo/cost/plan_file.h"
#include "rondo/cost/profile_json.h"
#include "rondo/format/file.h"
#include "rondo/format/json_strict.h"
#include "rondo/plan/plan_file.h"
#include "rondo/profile/job_profile.h"
#include "rondo/train/agreement.h"

namespace rondo {
namespace {

using Json = nlohmann::ordered_json;

// Every rank reads its own host's file, so they may differ.
void check_same_plan(const Context& context, const std::string& hash) {
  std::map<std::string, std::vector<int>> ranks_of;
  const std::vector<nlohmann::json> hashes = all_gather_object(hash, context.world());
  for (std::size_t rank = 0; rank < hashes.size(); ++rank)
    ranks_of[hashes[rank].get<std::string>()].push_back(static_cast<int>(rank));
  if (ranks_of.size() == 1) return;
  std::vector<std::string> parts;
  for (const auto& [each, ranks] : ranks_of) parts.push_back(str("rank ", join(ranks, ", "), " has ", each));
  throw AgreedError(str("the ranks have different plans (by hash: ", join(parts, "; "),
                        "); give every host the same --plan file"),
                    ExitCode::usage, context.rank() == 0);
}

void check_plan_is_for_job(const TrainFlags& flags, const cost::PlanFile& plan, int world_size) {
  const std::string source = str("plan ", flags.plan);
  if (!plan.model.empty() && plan.model != flags.model) {
    throw UsageError(str(source, " was made for model ", plan.model, ", and this job trains ", flags.model,
                         "; profile and plan ", flags.model));
  }
  if (!plan.schedule) return;
  const auto batch = static_cast<std::uint64_t>(batch_size_per_rank(flags, world_size));
  if (plan.schedule->batch_size != batch) {
    throw UsageError(str(source, " was made for a batch of ", plan.schedule->batch_size,
                         " samples a rank, and this job has ", batch, "; profile with --batch-size ", batch,
                         " and plan again"));
  }
  if (plan.schedule->micro_batches != flags.accumulate) {
    throw UsageError(str(source, " was made for ", plan.schedule->micro_batches,
                         " micro-batches a step, and --accumulate is ", flags.accumulate,
                         "; plan again with --micro-batches ", flags.accumulate));
  }
  if (flags.checkpoint_activations != "none") {
    throw UsageError(str("--checkpoint-activations ", flags.checkpoint_activations, ": ", source,
                         " says which units are checkpointed; leave the flag out"));
  }
  if (flags.profile.empty()) return;
  const std::string hash = cost::profile_hash(cost::read_profile(flags.profile));
  if (hash != plan.schedule->profile_hash) {
    throw UsageError(str(source, " was made from a profile with hash ", plan.schedule->profile_hash, ", and ",
                         flags.profile, " has ", hash, "; plan again from this profile"));
  }
}

Prediction prediction_of(const Json& plan, const cost::PlanFile& file, const cost::Profile* profile) {
  Prediction prediction;
  prediction.step_ms = plan.at("step_ms").get<double>();
  prediction.exposed_comm_ms = plan.at("exposed_comm_ms").get<double>();
  prediction.peak_bytes = plan.at("peak_bytes").get<std::uint64_t>();
  const int passes = file.schedule->micro_batches;
  for (std::size_t i = 0; i < file.units.size(); ++i) {
    const cost::PlannedUnit& unit = file.units[i];
    const Json& said = plan.at("units")[i];
    prediction.units.push_back({.name = unit.name,
                                .choice = describe(unit.choice),
                                .exposed_comm_ms = said.value("exposed_comm_ms", 0.0),
                                .peak_bytes = said.value("peak_bytes", std::uint64_t{0})});
    if (profile == nullptr) continue;
    for (const cost::UnitProfile& measured : profile->units) {
      if (measured.name != unit.name) continue;
      prediction.units.back().forward_ms = passes * measured.forward_s * 1e3;
      prediction.units.back().backward_ms =
          passes * (measured.backward_s + (unit.choice.checkpoint ? measured.recompute_s : 0)) * 1e3;
    }
  }
  return prediction;
}

// A profile of this very job that is there already, on rank 0; empty text when there is none.
std::string known_profile(const TrainFlags& flags, const RunDirectory& run, const std::string& made_for) {
  if (!flags.profile.empty()) {
    const cost::Profile profile = cost::read_profile(flags.profile);
    if (!profile.made_for.empty() && profile.made_for != made_for) {
      throw UsageError(str("--profile ", flags.profile, " was measured for ", profile.made_for,
                           ", and this job is ", made_for,
                           "; leave --profile out, and this job is measured"));
    }
    return cost::to_json(profile).dump();
  }
  if (!std::filesystem::exists(run.path / "profile.json")) return "";
  const cost::Profile profile = cost::read_profile(run.path / "profile.json");
  return profile.made_for == made_for ? cost::to_json(profile).dump() : "";
}

cost::Profile profile_of_job(const TrainFlags& flags, const Context& context, const RunDirectory& run,
                             const JobToPlan& job) {
  Model model = job.make_model();
  const std::string made_for = describe_job(model, job.batch.input.size(0), job.optimizer.name, context);
  std::string known;
  run_agreed(context, [&] {
    if (context.rank() == 0) known = known_profile(flags, run, made_for);
  });
  known = broadcast_object(known, context.world()).get<std::string>();
  if (!known.empty()) return cost::parse_profile(parse_json_strict(known, "profile"), "profile");
  if (context.rank() == 0) log::info("planned: measuring ", made_for);
  JobProfileOptions options;
  options.model.optimizer = job.optimizer;
  options.link.credit = parse_bytes(flags.credit, "--credit");
  options.link.runs = 5;
  options.link.contention_runs = 7;
  options.link.patience = std::chrono::seconds(6);
  std::uint64_t largest = 0;
  for (const at::Tensor& parameter : model.module->parameters()) largest += parameter.nbytes();
  options.link.largest = Bytes{std::clamp<std::uint64_t>(largest, KiB(256).count, MiB(64).count)};
  return profile_job(context, std::move(model), job.batch.input, job.batch.target, options, made_for);
}

// Of the limit: a predicted peak is a little off, and what goes beyond the limit ends the training.
constexpr double kPlannedShare = 0.99;

Json make_plan_json(const TrainFlags& flags, const cost::Profile& profile, int ranks) {
  cost::StepOptions step;
  step.ranks = ranks;
  step.micro_batches = static_cast<int>(flags.accumulate);
  const cost::StepModel model = cost::make_step_model(profile, step);
  plan::PlannerOptions options;
  const Bytes limit = parse_bytes(flags.memory_limit, "--memory-limit");
  options.memory_limit = static_cast<std::uint64_t>(kPlannedShare * static_cast<double>(limit.count));
  options.time_limit = parse_duration(flags.plan_time_limit, "--plan-time-limit");
  const plan::Answer answer = plan::make_plan(model, options);
  const plan::Explanation explanation = plan::explain(model, answer, options.memory_limit);
  if (!answer.feasible) {
    // As a number, so that it can be typed as it stands.
    const auto smallest =
        static_cast<std::uint64_t>(std::ceil(static_cast<double>(answer.floor.bytes) / kPlannedShare));
    throw UsageError(str("--memory-limit ", flags.memory_limit, " is infeasible: ", explanation.binding,
                         "; the smallest limit that any plan fits is ", smallest, "B (",
                         to_string(Bytes{smallest}), ")"));
  }
  return plan::plan_to_json(model, answer, explanation, options);
}

// Into the run's directory, where the report looks for them.
void keep(const RunDirectory& run, const Json& plan, const cost::Profile* profile) {
  std::filesystem::create_directories(run.path);
  replace_text_file(run.path / "plan.json", plan.dump(1) + "\n");
  if (profile != nullptr)
    replace_text_file(run.path / "profile.json", cost::to_json(*profile).dump(1) + "\n");
}

JobPlan plan_from_file(const TrainFlags& flags, const Context& context, const RunDirectory& run) {
  JobPlan result;
  std::string hash;
  run_agreed(context, [&] {
    const Json json = cost::read_plan_json(flags.plan);
    const cost::PlanFile file = cost::parse_plan_file(json, str("plan ", flags.plan));
    check_plan_is_for_job(flags, file, context.world_size());
    hash = file.hash;
    result.text = json.dump();
    result.predicts = file.schedule.has_value();
    std::optional<cost::Profile> profile;
    if (!flags.profile.empty()) profile = cost::read_profile(flags.profile);
    if (result.predicts) result.prediction = prediction_of(json, file, profile ? &*profile : nullptr);
    if (context.rank() == 0) keep(run, json, profile ? &*profile : nullptr);
  });
  check_same_plan(context, hash);
  return result;
}

}  // namespace

JobPlan plan_job(const TrainFlags& flags, const Context& context, const RunDirectory& run,
                 const std::function<JobToPlan()>& job) {
  if (flags.strategy != "planned") return {};
  if (!flags.plan.empty()) return plan_from_file(flags, context, run);
  run_agreed(context, [&] {
    if (flags.memory_limit.empty())
      throw UsageError(
          "--strategy planned needs --plan FILE, which `rondo plan` writes, or --memory-limit SIZE to plan "
          "for");
    if (context.world_size() == 1)
      throw UsageError("--strategy planned plans for several processes; give --nproc-per-node 2 or more");
    if (flags.checkpoint_activations != "none")
      throw UsageError(str("--checkpoint-activations ", flags.checkpoint_activations,
                           ": a plan says which units are checkpointed; leave the flag out"));
  });
  const cost::Profile profile = profile_of_job(flags, context, run, job());
  std::string text;
  run_agreed(context, [&] {
    if (context.rank() != 0) return;
    // Before there is a plan: whoever gives another limit need not wait for the profile again.
    std::filesystem::create_directories(run.path);
    replace_text_file(run.path / "profile.json", cost::to_json(profile).dump(1) + "\n");
    const Json json = make_plan_json(flags, profile, context.world_size());
    keep(run, json, nullptr);
    text = json.dump();
    log::info("planned: ", json["step_ms"].get<double>(), " ms a step, gap ", json["gap"].get<double>() * 100,
              " %, peak ", to_string(Bytes{json["peak_bytes"].get<std::uint64_t>()}), ", ",
              json["solver"].get<std::string>(), " in ", json["solve_s"].get<double>(), " s");
  });
  JobPlan result;
  result.text = broadcast_object(text, context.world()).get<std::string>();
  const Json json = parse_json_strict(result.text, "plan");
  const cost::PlanFile file = cost::parse_plan_file(json, "plan");
  check_same_plan(context, file.hash);
  result.prediction = prediction_of(json, file, &profile);
  result.predicts = true;
  return result;
}

}  // namespace rondo
