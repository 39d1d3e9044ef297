#include "rondo/plan/plan_file.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/cost/profile_json.h"

namespace rondo::plan {
namespace {

using Json = nlohmann::ordered_json;

std::size_t index(int number) { return static_cast<std::size_t>(number); }

Json units_to_json(const cost::StepModel& model, const simulate::StepPlan& plan,
                   const Explanation& explanation) {
  Json units = Json::array();
  for (int unit = 0; unit < model.units(); ++unit) {
    const cost::UnitChoice choice = plan.choices[index(unit)];
    units.push_back({{"name", model.profile.units[index(unit)].name},
                     {"strategy", cost::name(choice.strategy)},
                     {"checkpoint", choice.checkpoint},
                     {"reason", explanation.reasons[index(unit)]}});
  }
  return units;
}

Json blocks_to_json(const cost::StepModel& model, const simulate::StepPlan& plan) {
  Json blocks = Json::array();
  std::vector<int> launched(model.jobs.size(), 0);
  for (int slot = 0; slot < model.slots.count(); ++slot) {
    for (const simulate::Launch& launch : plan.launches[index(slot)]) {
      const cost::Job& job = model.jobs[index(launch.job)];
      for (int i = 0; i < launch.blocks; ++i) {
        const int number = launched[index(launch.job)]++;
        blocks.push_back({{"collective", cost::name(cost::collective(job.kind))},
                          {"unit", model.profile.units[index(job.unit)].name},
                          {"index", number},
                          {"bytes", job.block_bytes(number)},
                          {"slot", slot},
                          {"purpose", cost::name(job.kind)},
                          {"micro_batch", job.micro_batch}});
      }
    }
  }
  return blocks;
}

Json baselines_to_json(const Answer& answer) {
  Json baselines = Json::object();
  for (const Baseline& b : answer.baselines)
    baselines[b.name] = b.result.fits ? Json(b.result.step_s * 1e3) : Json(nullptr);
  return baselines;
}

template <class Value>
Value field(const Json& json, const char* key, const std::string& what) {
  const auto found = json.find(key);
  if (found == json.end()) throw DataError(str(what, ".", key, ": missing"));
  try {
    return found->get<Value>();
  } catch (const nlohmann::json::exception&) {
    throw DataError(str(what, ".", key, ": has another type than expected: ", found->dump().substr(0, 60)));
  }
}

}  // namespace

Json plan_to_json(const cost::StepModel& model, const Answer& answer, const Explanation& explanation,
                  const PlannerOptions& options) {
  Json json{{"feasible", answer.feasible},
            {"step_ms", answer.feasible ? Json(answer.result.step_s * 1e3) : Json(nullptr)},
            {"lower_bound_ms", answer.lower_bound_s * 1e3},
            {"gap", answer.feasible ? Json(answer.gap) : Json(nullptr)},
            {"peak_bytes", answer.result.peak_bytes},
            {"memory_limit_bytes", options.memory_limit},
            {"ranks", model.options.ranks},
            {"solve_s", answer.solve_s},
            {"solver", answer.solver},
            {"heuristic", answer.is_heuristic},
            {"objective", options.objective == Objective::step_time ? "step-time" : "overlap"},
            {"model", model.profile.model},
            {"shard_group", model.shard_group},
            {"micro_batches", model.options.micro_batches},
            {"compute_ms", answer.result.compute_s * 1e3},
            {"comm_ms", answer.result.communication_s * 1e3},
            {"exposed_comm_ms", answer.result.exposed_s * 1e3},
            {"smallest_limit_bytes", answer.floor.bytes},
            {"smallest_limit_proven", answer.floor.is_proven},
            {"binding", explanation.binding},
            {"one_more_gib_saves_ms", explanation.one_more_gib_saves_s * 1e3}};
  json["units"] = units_to_json(model, answer.plan, explanation);
  json["blocks"] = blocks_to_json(model, answer.plan);
  json["baselines"] = baselines_to_json(answer);
  json["notes"] = model.notes;
  json["profile_hash"] = cost::profile_hash(model.profile);
  return json;
}

PlanFile parse_plan_file(const Json& json, const std::string& what) {
  if (!json.is_object()) throw DataError(str(what, ": expected an object"));
  if (!field<bool>(json, "feasible", what))
    throw DataError(str(what, ": the plan is not feasible: no plan fits its memory limit"));
  PlanFile plan;
  plan.model = json.value("model", "");
  plan.ranks = field<int>(json, "ranks", what);
  plan.profile_hash = field<std::string>(json, "profile_hash", what);
  const Json units = field<Json>(json, "units", what);
  if (!units.is_array() || units.empty()) throw DataError(str(what, ".units: expected a list with units"));
  for (std::size_t i = 0; i < units.size(); ++i) {
    const std::string where = str(what, ".units[", i, "]");
    if (!units[i].is_object()) throw DataError(str(where, ": expected an object"));
    PlannedUnit unit;
    unit.name = field<std::string>(units[i], "name", where);
    try {
      unit.choice.strategy =
          cost::parse_strategy(field<std::string>(units[i], "strategy", where), str(where, ".strategy"));
    } catch (const UsageError& e) {
      throw DataError(e.what());
    }
    unit.choice.checkpoint = field<bool>(units[i], "checkpoint", where);
    plan.units.push_back(std::move(unit));
  }
  return plan;
}

simulate::StepPlan plan_from_json(const cost::StepModel& model, const Json& json, const std::string& what) {
  const PlanFile file = parse_plan_file(json, what);
  if (file.profile_hash != cost::profile_hash(model.profile)) {
    throw DataError(str(what, ": was made for another profile (", file.model, ", hash ", file.profile_hash,
                        ") than this one (", model.profile.model, ", hash ",
                        cost::profile_hash(model.profile), "); plan again with this profile"));
  }
  simulate::StepPlan plan;
  plan.launches.resize(index(model.slots.count()));
  std::map<std::string, int> numbers;
  for (int unit = 0; unit < model.units(); ++unit) {
    const std::string& name = model.profile.units[index(unit)].name;
    numbers[name] = unit;
    const auto found = std::find_if(file.units.begin(), file.units.end(),
                                    [&](const PlannedUnit& u) { return u.name == name; });
    if (found == file.units.end()) throw DataError(str(what, ".units: leaves out unit '", name, "'"));
    plan.choices.push_back(found->choice);
  }
  for (const PlannedUnit& unit : file.units) {
    if (!numbers.contains(unit.name))
      throw DataError(str(what, ".units: '", unit.name, "' is no unit of ", model.profile.model));
  }
  const Json blocks = field<Json>(json, "blocks", what);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const std::string where = str(what, ".blocks[", i, "]");
    const auto unit = numbers.find(field<std::string>(blocks[i], "unit", where));
    const std::string purpose = field<std::string>(blocks[i], "purpose", where);
    const int micro_batch = field<int>(blocks[i], "micro_batch", where);
    const int slot = field<int>(blocks[i], "slot", where);
    if (unit == numbers.end() || slot < 0 || slot >= model.slots.count())
      throw DataError(str(where, ": an unknown unit, or a slot outside of the step"));
    const auto job = std::find_if(model.jobs.begin(), model.jobs.end(), [&](const cost::Job& j) {
      return j.unit == unit->second && j.micro_batch == micro_batch && cost::name(j.kind) == purpose;
    });
    if (job == model.jobs.end()) throw DataError(str(where, ": no such collective: ", purpose));
    auto& launches = plan.launches[index(slot)];
    const int number = static_cast<int>(job - model.jobs.begin());
    if (!launches.empty() && launches.back().job == number) {
      ++launches.back().blocks;
    } else {
      launches.push_back({number, 1});
    }
  }
  simulate::check_plan(model, plan);
  return plan;
}

Json to_fsdp2(const cost::StepModel& model, const simulate::StepPlan& plan) {
  Json units = Json::array();
  Json approximated = Json::array();
  const auto name_of = [&](int unit) { return model.profile.units[index(unit)].name; };
  // Units whose gather begins while `slot` computes, by use.
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
