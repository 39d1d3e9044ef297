#include "apps/train/planned_training.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>

#include "rondo/backend/collectives.h"
#include "rondo/base/bytes.h"
#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/log.h"
#include "rondo/base/progress_line.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"
#include "rondo/cost/profile_json.h"
#include "rondo/cost/step_plan.h"
#include "rondo/format/file.h"
#include "rondo/models/model_options.h"
#include "rondo/parallel/declared_strategies_options.h"
#include "rondo/parallel/pipeline/pipeline_options.h"
#include "rondo/parallel/sharded/sharded_options.h"
#include "rondo/plan/mesh/mesh_plan.h"
#include "rondo/profile/plan_of_profile.h"
#include "rondo/train/agreement.h"

namespace rondo {
namespace {

using Json = nlohmann::ordered_json;

// Returns the options of the planned strategy.
ShardedOptions sharded_options(const TrainFlags& flags) {
  const std::vector<Declaration> declared = ShardedStrategyFactory::declarations();
  const OptionTable& table = find_declaration(declared, flags.strategy)->options;
  return *static_cast<const ShardedOptions*>(table.read(flags.options_in(table)).get());
}

std::string plan_file(const TrainFlags& flags) { return sharded_options(flags).plan; }

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

void check_plan_is_for_job(const TrainFlags& flags, const cost::StepPlan& plan, int world_size) {
  const std::string source = str("plan ", plan_file(flags));
  const std::string model = plain_model_name(flags.model);
  if (!plan.model.empty() && plan.model != model) {
    throw UsageError(str(source, " was made for model ", plan.model, ", and this job trains ", model,
                         "; profile and plan ", model));
  }
  if (!flags.mesh.empty())
    throw UsageError(str("--mesh ", flags.mesh, ": ", source, " sets the mesh; leave the flag out"));
  if (!plan.schedule) return;
  const int replicas = plan.mesh.empty() ? world_size : replicas_of(mesh_of_plan(plan, world_size));
  const auto batch = static_cast<std::uint64_t>(batch_size_per_replica(flags, replicas));
  if (plan.schedule->batch_size != batch) {
    const bool is_data = replicas == world_size;
    throw UsageError(str(source, " was made for a batch of ", plan.schedule->batch_size, " samples a ",
                         is_data ? "rank" : "replica", ", and this job has ", batch, "; ",
                         is_data ? str("profile with --batch-size ", batch, " and plan again")
                                 : str("give --batch-size ", plan.schedule->batch_size, ", or plan again")));
  }
  if (plan.schedule->micro_batches != flags.accumulate) {
    throw UsageError(str(source, " was made for ", plan.schedule->micro_batches,
                         " accumulated passes a step, and --gradient-accumulation-steps is ",
                         flags.accumulate, "; plan again with --gradient-accumulation-steps ",
                         flags.accumulate));
  }
  if (flags.checkpoint_activations != "none") {
    throw UsageError(str("--activation-checkpointing ", flags.checkpoint_activations, ": ", source,
                         " defines which units are checkpointed; leave the flag out"));
  }
  if (flags.profile.empty()) return;
  const std::string hash = cost::profile_hash(cost::read_profile(flags.profile));
  if (hash != plan.schedule->profile_hash) {
    throw UsageError(str(source, " was made from a profile with hash ", plan.schedule->profile_hash, ", and ",
                         flags.profile, " has ", hash, "; plan again from this profile"));
  }
}

Prediction prediction_of(const Json& plan, const cost::StepPlan& file, const cost::Profile* profile) {
  Prediction prediction;
  const std::string& where = file.source;
  const auto number = [](const Json& object, const char* key, const std::string& of) {
    return json_number(json_member(object, key, of), json_place(of, key));
  };
  const auto bytes = [](const Json& object, const char* key, const std::string& of) {
    return static_cast<std::uint64_t>(json_integer(json_member(object, key, of), json_place(of, key), 0));
  };
  prediction.step_ms = number(plan, "step_ms", where);
  prediction.exposed_comm_ms = number(plan, "exposed_comm_ms", where);
  prediction.peak_bytes = bytes(plan, "peak_bytes", where);
  const int passes = file.schedule->micro_batches;
  for (std::size_t i = 0; i < file.units.size(); ++i) {
    const cost::PlannedUnit& unit = file.units[i];
    const Json& said = plan.at("units").at(i);
    const std::string of_unit = str(where, ": unit '", unit.name, "'");
    const bool has_wait = said.contains("exposed_comm_ms"), has_peak = said.contains("peak_bytes");
    prediction.units.push_back(
        {.name = unit.name,
         .choice = describe(unit.choice),
         .exposed_comm_ms = has_wait ? number(said, "exposed_comm_ms", of_unit) : 0.0,
         .peak_bytes = has_peak ? bytes(said, "peak_bytes", of_unit) : std::uint64_t{0}});
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

// Prints progress for the waiting user.
void say(const TrainFlags& flags, const Context& context, const std::string& text) {
  if (context.rank() != 0 || flags.progress == "off") return;
  print_message(str(flags.strategy, ": ", text));
}

bool chooses_mesh(const TrainFlags& flags) { return flags.meshes == "all" || !flags.mesh.empty(); }

// Returns an existing profile of the same job, on rank 0; empty if there is none.
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
  const bool is_enough = profile.made_for == made_for && (!chooses_mesh(flags) || !profile.layers.empty());
  return is_enough ? cost::to_json(profile).dump() : "";
}

PlanForOptions plan_for_options(const TrainFlags& flags, const OptimizerOptions& optimizer = {},
                                const LossFunction& loss = cross_entropy) {
  return {.optimizer = optimizer,
          .loss = loss,
          .micro_batches = static_cast<int>(flags.accumulate),
          .time_limit = parse_duration(flags.plan_time_limit, "--plan-time-limit"),
          .in_flight_limit = sharded_options(flags).in_flight_bytes,
          .codec = sharded_options(flags).codec};
}

cost::Profile profile_of_job(const TrainFlags& flags, const Context& context, const RunDirectory& run,
                             const JobToPlan& job) {
  Model model = job.make_model();
  const std::string made_for = describe_job(model, job.batch, job.optimizer.name, job.loss_name, context);
  std::string known;
  run_agreed(context, [&] {
    if (context.rank() == 0) known = known_profile(flags, run, made_for);
  });
  known = broadcast_object(known, context.world()).get<std::string>();
  if (!known.empty()) return cost::parse_profile(parse_json_strict(known, "profile"), "profile");
  say(flags, context, str("measuring ", made_for, ", which takes some seconds"));
  const TimePoint begin = Clock::now();
  JobProfileOptions options =
      planning_profile_options(*model.module, plan_for_options(flags, job.optimizer, job.loss));
  if (chooses_mesh(flags)) {
    options.make_model = job.make_model;
    options.link.messages = true;
  }
  cost::Profile profile = profile_job(context, std::move(model), job.batch, options, made_for);
  say(flags, context, str("measured in ", std::round(seconds(Clock::now() - begin) * 10) / 10, " s"));
  return profile;
}

Json make_plan_json(const TrainFlags& flags, const cost::Profile& profile, int ranks) {
  const Bytes limit = parse_bytes(flags.memory_limit, "--memory-limit");
  const std::string limit_name = str("--memory-limit ", flags.memory_limit);
  if (!chooses_mesh(flags))
    return plan_of_profile(profile, ranks, limit, plan_for_options(flags), limit_name);
  plan::MeshSearch search;
  search.refusal = [&](const Mesh& mesh) { return mesh_refusal(mesh, flags.strategy); };
  int replicas = ranks;
  if (!flags.mesh.empty()) {
    search.mesh = mesh_of(flags, ranks);
    replicas = replicas_of(*search.mesh);
  }
  search.samples =
      static_cast<std::uint64_t>(batch_size_per_replica(flags, replicas) * replicas * flags.accumulate);
  return mesh_plan_of_profile(profile, ranks, limit, plan_for_options(flags), search, limit_name);
}

// The report expects these files in the run's directory.
std::string plan_text(const Json& plan) { return plan.dump(1) + "\n"; }
std::string profile_text(const cost::Profile& profile) { return cost::to_json(profile).dump(1) + "\n"; }

// Returns the choices of the units as text: "block.0 to block.3 zero3 + checkpoint; root, head ddp".
std::string choices_of(const Prediction& prediction) {
  std::map<std::string, std::vector<std::string>> units_of_choice;
  for (const Prediction::Unit& unit : prediction.units) units_of_choice[unit.choice].push_back(unit.name);
  std::vector<std::string> parts;
  for (const auto& [choice, units] : units_of_choice) {
    constexpr std::size_t kNamed = 4;
    const std::size_t named = std::min(units.size(), kNamed);
    const std::vector<std::string> first(units.begin(), units.begin() + static_cast<std::ptrdiff_t>(named));
    const std::string more = units.size() > named ? str(" and ", units.size() - named, " more") : "";
    parts.push_back(str(choice, " for ", join(first, ", "), more));
  }
  return join(parts, "; ");
}

std::string summary_of(const Prediction& prediction) {
  return str("a step of ", std::round(prediction.step_ms * 100) / 100, " ms, of which it waits ",
             std::round(prediction.exposed_comm_ms * 100) / 100, " ms, peak ",
             to_string(Bytes{prediction.peak_bytes}), " a rank; ", choices_of(prediction));
}

JobPlan plan_from_file(const TrainFlags& flags, const Context& context) {
  JobPlan result;
  std::string hash;
  run_agreed(context, [&] {
    const Json json = cost::read_plan_json(plan_file(flags));
    const cost::StepPlan file = cost::parse_step_plan(json, str("plan ", plan_file(flags)));
    check_plan_is_for_job(flags, file, context.world_size());
    hash = file.hash;
    result.text = json.dump();
    result.predicts = file.schedule.has_value();
    result.step = file;
    result.mesh = mesh_of_plan(file, context.world_size());
    std::optional<cost::Profile> profile;
    if (!flags.profile.empty()) profile = cost::read_profile(flags.profile);
    if (result.predicts) result.prediction = prediction_of(json, file, profile ? &*profile : nullptr);
    result.files["plan.json"] = plan_text(json);
    if (profile) result.files["profile.json"] = profile_text(*profile);
  });
  check_same_plan(context, hash);
  say(flags, context,
      str("by ", plan_file(flags), result.predicts ? ": " + summary_of(result.prediction) : std::string()));
  return result;
}

}  // namespace

std::int64_t profiled_batch_size(const TrainFlags& flags, int world_size) {
  if (!flags.is_planned || flags.mesh.empty()) return batch_size_per_replica(flags, world_size);
  const int replicas = replicas_of(mesh_of(flags, world_size));
  return std::max<std::int64_t>(1, batch_size_per_replica(flags, replicas) * replicas / world_size);
}

JobPlan plan_job(const TrainFlags& flags, const Context& context, const RunDirectory& run,
                 const std::function<JobToPlan()>& job) {
  if (!flags.is_planned) return {};
  if (!plan_file(flags).empty()) return plan_from_file(flags, context);
  run_agreed(context, [&] {
    if (flags.memory_limit.empty())
      throw UsageError(
          str("--strategy ", flags.strategy,
              " needs --plan FILE, which `rondo plan` writes, or --memory-limit SIZE to plan for"));
    if (context.world_size() == 1)
      throw UsageError(str("--strategy ", flags.strategy,
                           " plans for several processes; give --nproc-per-node 2 or more"));
    if (flags.checkpoint_activations != "none")
      throw UsageError(str("--activation-checkpointing ", flags.checkpoint_activations, ": with --strategy ",
                           flags.strategy,
                           " the plan defines which units are checkpointed; leave the flag out"));
  });
  run_agreed(context, [&] {
    const OptionTable cuts = PipelineStrategyFactory::declarations().front().options;
    for (const Option& option : cuts.options()) {
      const auto given = flags.options.find(option.name);
      // A configuration file contains all of them.
      if (given != flags.options.end() && given->second != option.default_text.value_or(""))
        throw UsageError(str("--", option.name, " ", given->second,
                             ": the plan sets the stages of a replica; leave the flag out"));
    }
    if (!flags.mesh.empty()) mesh_of(flags, context.world_size());
  });
  const cost::Profile profile = profile_of_job(flags, context, run, job());
  std::string text;
  JobPlan result;
  say(flags, context,
      str("searching a plan for ", flags.memory_limit, ", for ", flags.plan_time_limit, " at most"));
  run_agreed(context, [&] {
    if (context.rank() != 0) return;
    result.files["profile.json"] = profile_text(profile);
    if (!flags.dry_run && !std::filesystem::exists(run.path / "config.json"))
      replace_text_file(run.path / "profile.json", result.files["profile.json"]);
    const Json json = make_plan_json(flags, profile, context.world_size());
    result.files["plan.json"] = plan_text(json);
    text = json.dump();
  });
  result.text = broadcast_object(text, context.world()).get<std::string>();
  const Json json = parse_json_strict(result.text, "plan");
  const cost::StepPlan file = cost::parse_step_plan(json, "plan");
  check_same_plan(context, file.hash);
  result.prediction = prediction_of(json, file, &profile);
  result.predicts = true;
  result.step = file;
  result.mesh = mesh_of_plan(file, context.world_size());
  if (!result.mesh.empty()) result.batch_size = static_cast<std::int64_t>(file.schedule->batch_size);
  say(flags, context,
      str(result.mesh.empty()
              ? ""
              : str("mesh ", to_string(result.mesh), ", batches of ", result.batch_size, " a replica: "),
          summary_of(result.prediction), "; gap ", std::round(json["gap"].get<double>() * 1e4) / 100, " %, ",
          json["solver"].get<std::string>(), " in ", std::round(json["solve_s"].get<double>() * 10) / 10,
          " s"));
  return result;
}

}  // namespace rondo
