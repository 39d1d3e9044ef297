#include "rondo/plan/plan_file.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/cost/profile_json.h"
#include "rondo/plan/schedule/schedules.h"
#include "rondo/simulate/step_simulator.h"

namespace rondo::plan {
namespace {

using Json = nlohmann::ordered_json;

Json units_to_json(const StepPlan& plan, const Explanation& explanation,
                   const std::vector<simulate::UnitForecast>& forecasts) {
  Json units = Json::array();
  for (std::size_t i = 0; i < plan.units.size(); ++i) {
    const PlannedUnit& unit = plan.units[i];
    units.push_back({{"name", unit.name},
                     {"strategy", cost::name(unit.choice.strategy)},
                     {"checkpoint", unit.choice.checkpoint},
                     {"parameter_bytes", *unit.parameter_bytes},
                     {"exposed_comm_ms", forecasts[i].exposed_s * 1e3},
                     {"peak_bytes", forecasts[i].peak_bytes},
                     {"reason", explanation.reasons[i]}});
  }
  return units;
}

Json segments_to_json(const StepPlan& plan) {
  Json segments = Json::array();
  // Segments launched so far, by collective.
  std::map<std::tuple<cost::JobKind, std::size_t, int>, int> launched;
  for (const cost::PlannedSegment& segment : plan.schedule->segments) {
    segments.push_back({{"collective", cost::name(cost::collective(segment.purpose))},
                        {"unit", plan.units[segment.unit].name},
                        {"index", launched[{segment.purpose, segment.unit, segment.micro_batch}]++},
                        {"bytes", segment.bytes},
                        {"slot", segment.slot},
                        {"purpose", cost::name(segment.purpose)},
                        {"micro_batch", segment.micro_batch}});
  }
  return segments;
}

Json waits_to_json(const StepPlan& plan) {
  Json waits = Json::array();
  for (const cost::PlannedWait& wait : plan.schedule->waits)
    waits.push_back({{"slot", wait.slot}, {"segment", wait.segment}});
  return waits;
}

Json baselines_to_json(const PlanResult& answer) {
  Json baselines = Json::object();
  for (const Baseline& b : answer.baselines)
    baselines[b.name] = b.result.fits ? Json(b.result.step_s * 1e3) : Json(nullptr);
  return baselines;
}

// Returns the waits of slots that need the memory of gradients, including reductions that the plan expects to
// have completed long before, because the link may be late. A wait of an earlier slot is not repeated.
std::vector<cost::PlannedWait> waits_of(const simulate::Timeline& timeline) {
  std::vector<cost::PlannedWait> waits;
  int gone = -1;
  for (std::size_t slot = 0; slot < timeline.slots.size(); ++slot) {
    if (timeline.slots[slot].needs_gone <= gone) continue;
    gone = timeline.slots[slot].needs_gone;
    waits.push_back({static_cast<int>(slot), static_cast<std::size_t>(gone)});
  }
  return waits;
}

}  // namespace

StepPlan step_plan(const cost::StepModel& model, const PlanResult& answer, std::uint64_t memory_limit,
                   const simulate::Timeline& timeline) {
  StepPlan plan{.model = model.profile.model, .ranks = model.options.ranks};
  for (int unit = 0; unit < model.units(); ++unit) {
    const cost::UnitProfile& profile = model.profile.units[index(unit)];
    plan.units.push_back({profile.name, answer.plan.choices[index(unit)], profile.parameter_bytes});
  }
  cost::PlannedSchedule& schedule = plan.schedule.emplace();
  schedule.shard_group = model.shard_group;
  schedule.micro_batches = model.options.micro_batches;
  schedule.batch_size = model.profile.batch_size;
  schedule.profile_hash = cost::profile_hash(model.profile);
  schedule.memory_limit_bytes = memory_limit;
  std::vector<int> launched(model.jobs.size(), 0);
  for (int slot = 0; slot < model.slots.count(); ++slot) {
    for (const simulate::Launch& launch : answer.plan.launches[index(slot)]) {
      const cost::Job& job = model.jobs[index(launch.job)];
      for (int i = 0; i < launch.segments; ++i) {
        schedule.segments.push_back({job.kind, index(job.unit), job.micro_batch, slot,
                                     job.segment_bytes(launched[index(launch.job)]++)});
      }
    }
  }
  if (answer.feasible) schedule.waits = waits_of(timeline);
  return plan;
}

Json plan_to_json(const cost::StepModel& model, const PlanResult& answer, const Explanation& explanation,
                  const PlannerOptions& options) {
  simulate::Timeline timeline;
  simulate::simulate_step(model, answer.plan, answer.feasible ? options.memory_limit : answer.floor.bytes,
                          &timeline);
  const StepPlan plan = step_plan(model, answer, options.memory_limit, timeline);
  Json json{{"feasible", answer.feasible},
            {"step_ms", answer.feasible ? Json(answer.result.step_s * 1e3) : Json(nullptr)},
            {"lower_bound_ms", answer.lower_bound_s * 1e3},
            {"gap", answer.feasible ? Json(answer.gap) : Json(nullptr)},
            {"peak_bytes", answer.result.peak_bytes},
            {"memory_limit_bytes", options.memory_limit},
            {"ranks", plan.ranks},
            {"solve_s", answer.solve_s},
            {"solver", answer.solver},
            {"heuristic", answer.is_heuristic},
            {"objective", options.objective == Objective::step_time ? "step-time" : "overlap"},
            {"model", plan.model},
            {"batch_size", plan.schedule->batch_size},
            {"shard_group", plan.schedule->shard_group},
            {"micro_batches", plan.schedule->micro_batches},
            {"compute_ms", answer.result.compute_s * 1e3},
            {"comm_ms", answer.result.communication_s * 1e3},
            {"exposed_comm_ms", answer.result.exposed_s * 1e3},
            {"slowed_ms", answer.result.slowed_s * 1e3},
            {"smallest_limit_bytes", answer.floor.bytes},
            {"smallest_limit_proven", answer.floor.is_proven},
            {"binding", explanation.binding},
            {"one_more_gib_saves_ms", explanation.one_more_gib_saves_s * 1e3}};
  json["units"] = units_to_json(plan, explanation, simulate::forecast_units(model, timeline));
  json["segments"] = segments_to_json(plan);
  json["waits"] = waits_to_json(plan);
  json["baselines"] = baselines_to_json(answer);
  json["notes"] = model.notes;
  json["profile_hash"] = plan.schedule->profile_hash;
  return json;
}

simulate::Candidate plan_from_json(const cost::StepModel& model, const Json& json, const std::string& what) {
  const StepPlan file = parse_step_plan(json, what);
  if (!file.schedule)
    throw UsageError(str(what,
                         ": lacks the schedule of segments (short form), which only training accepts; `rondo "
                         "plan --plan-out` writes the full form"));
  if (file.schedule->profile_hash != cost::profile_hash(model.profile)) {
    throw UsageError(str(what, ": was made for another profile (", file.model, ", hash ",
                         file.schedule->profile_hash, ") than this one (", model.profile.model, ", hash ",
                         cost::profile_hash(model.profile), "); plan again with this profile"));
  }
  if (file.pipeline || file.ranks != model.options.ranks || file.mesh.find("tensor") != std::string::npos) {
    throw UsageError(str(what, ": is of ", file.ranks, " ranks",
                         file.mesh.empty() ? "" : str(" on mesh ", file.mesh), ", but the simulation has ",
                         model.options.ranks,
                         " along data; `rondo simulate --mesh` says what such a step takes"));
  }
  simulate::Candidate plan;
  plan.launches.resize(index(model.slots.count()));
  std::vector<int> numbers(file.units.size(), -1);
  for (int unit = 0; unit < model.units(); ++unit) {
    const std::string& name = model.profile.units[index(unit)].name;
    const PlannedUnit* const found = file.find(name);
    if (found == nullptr) throw DataError(str(what, ".units: leaves out unit '", name, "'"));
    numbers[static_cast<std::size_t>(found - file.units.data())] = unit;
    plan.choices.push_back(found->choice);
  }
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (numbers[i] < 0)
      throw DataError(str(what, ".units: '", file.units[i].name, "' is no unit of ", model.profile.model));
  }
  for (std::size_t i = 0; i < file.schedule->segments.size(); ++i) {
    const cost::PlannedSegment& segment = file.schedule->segments[i];
    const std::string where = str(what, ".segments[", i, "]");
    if (segment.slot >= model.slots.count()) throw DataError(str(where, ": a slot outside of the step"));
    const auto job = std::find_if(model.jobs.begin(), model.jobs.end(), [&](const cost::Job& j) {
      return j.unit == numbers[segment.unit] && j.micro_batch == segment.micro_batch &&
             j.kind == segment.purpose;
    });
    if (job == model.jobs.end())
      throw DataError(str(where, ": no such collective: ", cost::name(segment.purpose)));
    auto& launches = plan.launches[index(segment.slot)];
    const int number = static_cast<int>(job - model.jobs.begin());
    if (!launches.empty() && launches.back().job == number) {
      ++launches.back().segments;
    } else {
      launches.push_back({number, 1});
    }
  }
  simulate::check_plan(model, plan);
  return plan;
}

Json to_fsdp2(const cost::StepModel& model, const simulate::Candidate& plan) {
  Json units = Json::array();
  Json approximated = Json::array();
  const auto name_of = [&](int unit) { return model.profile.units[index(unit)].name; };
  // Returns the units whose gather starts during `slot`, in the order of use.
  const auto gathered_in = [&](int slot, cost::JobKind kind) {
    Json names = Json::array();
    for (const simulate::Launch& launch : plan.launches[index(slot)]) {
      const cost::Job& job = model.jobs[index(launch.job)];
      if (job.kind != kind || job.micro_batch != 0) continue;
      if (std::find(names.begin(), names.end(), name_of(job.unit)) == names.end())
        names.push_back(name_of(job.unit));
    }
    return names;
  };
  for (int unit = 0; unit < model.units(); ++unit) {
    const cost::UnitChoice choice = plan.choices[index(unit)];
    if (!shards_parameters(choice.strategy)) approximated.push_back(name_of(unit));
    units.push_back(
        {{"name", name_of(unit)},
         {"reshard_after_forward", choice.strategy == cost::Strategy::zero3},
         {"checkpoint", choice.checkpoint},
         {"forward_prefetch", gathered_in(model.slots.forward(0, unit), cost::JobKind::gather_forward)},
         {"backward_prefetch", gathered_in(model.slots.backward(0, unit), cost::JobKind::gather_backward)}});
  }
  return {
      {"format", "rondo-fsdp2-1"}, {"units", std::move(units)}, {"approximated", std::move(approximated)}};
}

}  // namespace rondo::plan
