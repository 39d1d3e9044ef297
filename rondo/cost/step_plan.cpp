#include "rondo/cost/step_plan.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "rondo/base/json_strict.h"
#include "rondo/cost/json_reader.h"
#include "rondo/format/checksum.h"
#include "rondo/format/file.h"

namespace rondo::cost {
namespace {

using Json = nlohmann::ordered_json;

PlannedUnit parse_unit(const Json& json, const std::string& where, bool is_full) {
  const JsonReader reader(
      json, where,
      {"name", "strategy", "checkpoint", "reason", "parameter_bytes", "exposed_comm_ms", "peak_bytes"});
  PlannedUnit unit;
  unit.name = reader.text("name");
  try {
    unit.choice.strategy =
        parse_strategy(reader.text("strategy"), str(where, ".strategy, unit '", unit.name, "'"));
  } catch (const UsageError& error) {
    throw DataError(error.what());
  }
  if (is_full || reader.has("checkpoint")) unit.choice.checkpoint = reader.boolean("checkpoint");
  if (is_full || reader.has("parameter_bytes")) unit.parameter_bytes = reader.whole("parameter_bytes");
  return unit;
}

JobKind parse_purpose(const std::string& text, const std::string& where) {
  for (int kind = 0; kind < kJobKinds; ++kind) {
    if (text == name(static_cast<JobKind>(kind))) return static_cast<JobKind>(kind);
  }
  throw DataError(str(where, ": no such collective: '", text, "'"));
}

class ScheduleReader {
 public:
  ScheduleReader(const JsonReader& plan, const std::vector<PlannedUnit>& units)
      : plan_(plan), slots_{static_cast<int>(units.size()), number("micro_batches")} {
    for (std::size_t i = 0; i < units.size(); ++i) numbers_[units[i].name] = i;
  }

  PlannedSchedule read() {
    PlannedSchedule schedule;
    schedule.shard_group = number("shard_group");
    schedule.micro_batches = slots_.micro_batches;
    schedule.batch_size = plan_.whole("batch_size");
    schedule.profile_hash = plan_.text("profile_hash");
    schedule.memory_limit_bytes = plan_.whole("memory_limit_bytes");
    for (const Json& segment : plan_.list("segments"))
      schedule.segments.push_back(parse_segment(segment, where("segments", schedule.segments.size())));
    const auto later = [](const PlannedSegment& a, const PlannedSegment& b) { return a.slot > b.slot; };
    const auto wrong = std::adjacent_find(schedule.segments.begin(), schedule.segments.end(), later);
    if (wrong != schedule.segments.end()) {
      throw DataError(str(where("segments", static_cast<std::size_t>(wrong - schedule.segments.begin()) + 1),
                          ".slot: segments are not in the order of their slots"));
    }
    for (const Json& wait : plan_.list("waits")) {
      const std::string at = where("waits", schedule.waits.size());
      const JsonReader reader(wait, at, {"slot", "segment"});
      schedule.waits.push_back({slot(reader), static_cast<std::size_t>(reader.whole("segment"))});
      if (schedule.waits.back().segment >= schedule.segments.size())
        throw DataError(str(reader.path("segment"), ": there are ", schedule.segments.size(), " segments"));
    }
    return schedule;
  }

 private:
  std::string where(const char* list, std::size_t index) const {
    return str(plan_.path(list), "[", index, "]");
  }
  int number(const char* key) const {
    const std::uint64_t value = plan_.whole(key);
    if (value < 1 || value > 1'000'000)
      throw DataError(str(plan_.path(key), ": ", value, " is out of range"));
    return static_cast<int>(value);
  }
  int slot(const JsonReader& reader) const {
    const std::uint64_t value = reader.whole("slot");
    if (value >= static_cast<std::uint64_t>(slots_.count()))
      throw DataError(str(reader.path("slot"), ": ", value, " lies outside of the step's ", slots_.count()));
    return static_cast<int>(value);
  }
  PlannedSegment parse_segment(const Json& json, const std::string& at) const {
    const JsonReader reader(json, at,
                            {"collective", "unit", "index", "bytes", "slot", "purpose", "micro_batch"});
    const auto unit = numbers_.find(reader.text("unit"));
    if (unit == numbers_.end()) throw DataError(str(reader.path("unit"), ": the plan has no such unit"));
    const std::uint64_t micro_batch = reader.whole("micro_batch");
    if (micro_batch >= static_cast<std::uint64_t>(slots_.micro_batches))
      throw DataError(str(reader.path("micro_batch"), ": there are ", slots_.micro_batches));
    return {.purpose = parse_purpose(reader.text("purpose"), reader.path("purpose")),
            .unit = unit->second,
            .micro_batch = static_cast<int>(micro_batch),
            .slot = slot(reader),
            .bytes = reader.whole("bytes")};
  }

  const JsonReader& plan_;
  Slots slots_;
  std::map<std::string, std::size_t> numbers_;
};

PlannedPipeline parse_pipeline(const Json& json, const std::string& where) {
  const JsonReader reader(json, where, {"schedule", "micro_batches", "chunks", "stage_cuts", "ranks"});
  PlannedPipeline pipeline;
  pipeline.schedule = reader.text("schedule");
  const auto count = [&](const char* key) {
    const std::uint64_t value = reader.whole(key);
    if (value < 1 || value > 1'000'000)
      throw DataError(str(reader.path(key), ": ", value, " is out of range"));
    return static_cast<int>(value);
  };
  pipeline.micro_batches = count("micro_batches");
  pipeline.chunks = count("chunks");
  for (const Json& cut : reader.list("stage_cuts")) {
    if (!cut.is_string()) throw DataError(str(reader.path("stage_cuts"), ": expected strings"));
    pipeline.stage_cuts.push_back(cut.get<std::string>());
  }
  for (const Json& rank : reader.list("ranks")) {
    const std::string at = str(reader.path("ranks"), "[", pipeline.strategies.size(), "]");
    const JsonReader of(rank, at,
                        {"layers", "strategy", "busy_ms", "idle_ms", "exposed_comm_ms", "peak_bytes"});
    try {
      pipeline.strategies.push_back(parse_strategy(of.text("strategy"), of.path("strategy")));
    } catch (const UsageError& error) {
      throw DataError(error.what());
    }
  }
  return pipeline;
}

// Returns equal hashes for plans that define the same training, even if their files differ in other entries.
std::string hash_of(const StepPlan& plan) {
  std::string text = str(plan.model, " ", plan.ranks);
  for (const PlannedUnit& unit : plan.units) text += str("\n", unit.name, " ", describe(unit.choice));
  if (plan.schedule) {
    text += str("\n", plan.schedule->micro_batches, " ", plan.schedule->profile_hash);
    for (const PlannedSegment& b : plan.schedule->segments)
      text += str("\n", name(b.purpose), " ", b.unit, " ", b.micro_batch, " ", b.slot, " ", b.bytes);
    for (const PlannedWait& wait : plan.schedule->waits) text += str("\n", wait.slot, " ", wait.segment);
  }
  if (!plan.mesh.empty()) text += str("\n", plan.mesh);
  if (plan.pipeline) {
    const PlannedPipeline& p = *plan.pipeline;
    text += str("\n", p.schedule, " ", p.micro_batches, " ", p.chunks, " ", join(p.stage_cuts, ","));
    for (const Strategy strategy : p.strategies) text += str(" ", name(strategy));
  }
  return checksum_hex(as_bytes(text)).substr(0, 16);
}

}  // namespace

const PlannedUnit* StepPlan::find(const std::string& unit) const {
  const auto found = std::find_if(units.begin(), units.end(),
                                  [&](const PlannedUnit& planned) { return planned.name == unit; });
  return found == units.end() ? nullptr : &*found;
}

StepPlan parse_step_plan(const Json& json, const std::string& what) {
  if (json.is_object() && json.contains("format") && json.contains("link")) {
    throw DataError(str(
        what, " is a profile, which `rondo profile` wrote; a plan is expected, which `rondo plan` writes"));
  }
  const bool is_full = json.is_object() && json.contains("segments");
  // Fields for people and reports only are accepted and not parsed.
  const JsonReader reader(json, what,
                          {"feasible",
                           "step_ms",
                           "lower_bound_ms",
                           "gap",
                           "peak_bytes",
                           "memory_limit_bytes",
                           "ranks",
                           "solve_s",
                           "solver",
                           "heuristic",
                           "objective",
                           "model",
                           "batch_size",
                           "shard_group",
                           "micro_batches",
                           "compute_ms",
                           "comm_ms",
                           "exposed_comm_ms",
                           "slowed_ms",
                           "smallest_limit_bytes",
                           "smallest_limit_proven",
                           "binding",
                           "one_more_gib_saves_ms",
                           "units",
                           "segments",
                           "waits",
                           "baselines",
                           "notes",
                           "profile_hash",
                           "sweep",
                           "random",
                           "timeline",
                           "mesh",
                           "pipeline",
                           "candidates"});
  if ((is_full || reader.has("feasible")) && !reader.boolean("feasible"))
    throw DataError(str(what, ": the plan is not feasible: no plan fits its memory limit"));
  StepPlan plan{.source = what};
  if (is_full || reader.has("model")) plan.model = reader.text("model");
  if (is_full || reader.has("ranks")) {
    const std::uint64_t ranks = reader.whole("ranks");
    if (ranks < 1 || ranks > 1'000'000)
      throw DataError(str(reader.path("ranks"), ": ", ranks, " is out of range"));
    plan.ranks = static_cast<int>(ranks);
  }
  std::set<std::string> names;
  for (const Json& unit : reader.list("units")) {
    plan.units.push_back(parse_unit(unit, str(reader.path("units"), "[", plan.units.size(), "]"), is_full));
    const std::string& name = plan.units.back().name;
    if (!names.insert(name).second)
      throw DataError(str(reader.path("units"), ": unit '", name, "' has two entries"));
  }
  if (plan.units.empty()) throw DataError(str(reader.path("units"), ": expected a list with units"));
  if (is_full) plan.schedule = ScheduleReader(reader, plan.units).read();
  if (reader.has("mesh")) plan.mesh = reader.text("mesh");
  if (reader.has("pipeline")) plan.pipeline = parse_pipeline(reader.at("pipeline"), reader.path("pipeline"));
  plan.hash = hash_of(plan);
  return plan;
}

Json read_plan_json(const std::string& path) {
  if (!std::filesystem::exists(path)) throw UsageError(str("the plan file ", path, " does not exist"));
  return read_json_file(path);
}

StepPlan read_step_plan(const std::string& path) {
  return parse_step_plan(read_plan_json(path), str("plan ", path));
}

}  // namespace rondo::cost
