#include <algorithm>
#include <nlohmann/json.hpp>

#include "rondo/base/text.h"
#include "rondo/cost/profile.h"
#include "rondo/cost/profile_json.h"
#include "rondo/plan/mesh/mesh_plan.h"
#include "rondo/plan/plan_file.h"

namespace rondo::plan {
namespace {

using Json = nlohmann::ordered_json;

constexpr auto kExplainingMesh = std::chrono::milliseconds(500);

Json milliseconds_or_null(bool is_known, double seconds) {
  return is_known ? Json(seconds * 1e3) : Json(nullptr);
}

Json candidates_to_json(const MeshPlan& plan) {
  Json candidates = Json::array();
  for (const MeshCandidate& each : plan.candidates) {
    Json json{{"mesh", to_string(each.mesh)}, {"batch_size", each.batch_size}};
    if (each.shard_group > 0) json["shard_group"] = each.shard_group;
    if (!each.schedule.empty()) {
      json["schedule"] = each.schedule;
      json["micro_batches"] = each.micro_batches;
    }
    json["fits"] = each.fits;
    json["step_ms"] = milliseconds_or_null(each.fits, each.step_s);
    json["lower_bound_ms"] = milliseconds_or_null(each.lower_bound_s < 1e300, each.lower_bound_s);
    json["peak_bytes"] = each.peak_bytes > 0 ? Json(each.peak_bytes) : Json(nullptr);
    json["why"] = each.why;
    candidates.push_back(std::move(json));
  }
  return candidates;
}

// Returns the layers' indices by rank of the pipeline.
std::vector<std::vector<std::size_t>> layers_of_ranks(const PipelinePlan& plan, std::size_t layers) {
  const pipeline::Schedule& schedule = plan.forecast.schedule;
  std::vector<std::vector<std::size_t>> result(static_cast<std::size_t>(schedule.ranks));
  for (std::size_t stage = 0; stage < plan.choice.first.size(); ++stage) {
    const std::size_t end = stage + 1 < plan.choice.first.size()
                                ? static_cast<std::size_t>(plan.choice.first[stage + 1])
                                : layers;
    for (auto layer = static_cast<std::size_t>(plan.choice.first[stage]); layer < end; ++layer)
      result[static_cast<std::size_t>(schedule.rank_of_stage[stage])].push_back(layer);
  }
  return result;
}

Json pipeline_to_json(const MeshCandidate& candidate) {
  const PipelinePlan& plan = *candidate.pipeline;
  Json cuts = Json::array();
  for (std::size_t stage = 1; stage < plan.choice.first.size(); ++stage)
    cuts.push_back(candidate.layers[static_cast<std::size_t>(plan.choice.first[stage])].name);
  Json ranks = Json::array();
  const auto layers = layers_of_ranks(plan, candidate.layers.size());
  for (std::size_t rank = 0; rank < layers.size(); ++rank) {
    const simulate::PipelineRank& of = plan.forecast.ranks[rank];
    Json names = Json::array();
    for (const std::size_t layer : layers[rank]) names.push_back(candidate.layers[layer].name);
    ranks.push_back({{"layers", std::move(names)},
                     {"strategy", cost::name(plan.choice.strategies[rank])},
                     {"busy_ms", of.busy_s * 1e3},
                     {"idle_ms", of.idle_s * 1e3},
                     {"exposed_comm_ms", of.exposed_s * 1e3},
                     {"peak_bytes", of.peak_bytes}});
  }
  return {{"schedule", plan.choice.schedule},
          {"micro_batches", plan.choice.micro_batches},
          {"chunks", plan.choice.chunks},
          {"stage_cuts", std::move(cuts)},
          {"ranks", std::move(ranks)}};
}

// A unit has the strategy of its first layer's rank; it is checkpointed if any of its layers is.
Json pipeline_units(const cost::Profile& profile, const MeshCandidate& candidate) {
  const PipelinePlan& plan = *candidate.pipeline;
  const auto layers = layers_of_ranks(plan, candidate.layers.size());
  Json units = Json::array();
  for (const cost::UnitProfile& unit : profile.units) {
    std::vector<std::string> places;
    cost::Strategy strategy = cost::Strategy::ddp;
    bool checkpoint = false;
    std::uint64_t peak = 0;
    for (std::size_t rank = 0; rank < layers.size(); ++rank) {
      for (const std::size_t layer : layers[rank]) {
        if (candidate.layers[layer].unit != unit.name) continue;
        if (places.empty()) strategy = plan.choice.strategies[rank];
        if (places.empty() || places.back() != std::to_string(rank)) places.push_back(std::to_string(rank));
        checkpoint = checkpoint || plan.choice.checkpointed[layer];
        peak = std::max(peak, plan.forecast.ranks[rank].peak_bytes);
      }
    }
    units.push_back({{"name", unit.name},
                     {"strategy", cost::name(strategy)},
                     {"checkpoint", checkpoint},
                     {"parameter_bytes", unit.parameter_bytes},
                     {"peak_bytes", peak},
                     {"reason", str("on rank ", join(places, " and "), " of the pipeline")}});
  }
  return units;
}

// A pipeline splits every pass into micro-batches of its own.
Json notes_of_pipeline(const cost::Profile& profile, const cost::StepOptions& step,
                       const MeshCandidate& best) {
  Json notes = Json::array();
  // The overhead only exists with replicas.
  if (mesh_shape(best.mesh, best.batch_size, step.micro_batches).copies() == 1) return notes;
  const int micro_batches = step.micro_batches * best.pipeline->choice.micro_batches;
  if (const auto note = cost::overhead_note(profile, micro_batches)) notes.push_back(*note);
  return notes;
}

Json pipeline_plan_to_json(const cost::Profile& profile, const cost::StepOptions& step, const MeshPlan& plan,
                           const PlannerOptions& options) {
  const MeshCandidate& best = plan.best();
  const simulate::PipelineForecast& forecast = best.pipeline->forecast;
  const auto slowest = std::max_element(forecast.ranks.begin(), forecast.ranks.end(),
                                        [](const auto& a, const auto& b) { return a.busy_s < b.busy_s; });
  Json baselines = Json::object();
  for (const MeshCandidate& each : plan.candidates) {
    if (&each != &best && each.peak_bytes > 0)
      baselines[each.name()] = milliseconds_or_null(each.fits, each.step_s);
  }
  return {{"feasible", best.fits},
          {"step_ms", milliseconds_or_null(best.fits, best.step_s)},
          {"lower_bound_ms", best.lower_bound_s * 1e3},
          {"gap", best.fits ? Json(best.step_s / best.lower_bound_s - 1) : Json(nullptr)},
          {"peak_bytes", best.peak_bytes},
          {"memory_limit_bytes", options.memory_limit},
          {"ranks", step.ranks},
          {"solve_s", plan.solve_s},
          {"solver", "dynamic program"},
          {"heuristic", false},
          {"objective", "step-time"},
          {"model", profile.model},
          {"batch_size", best.batch_size},
          {"shard_group", size_along(best.mesh, "data")},
          {"micro_batches", step.micro_batches},
          {"compute_ms", (slowest->busy_s + slowest->update_s) * 1e3},
          {"comm_ms", slowest->exposed_s * 1e3},
          {"exposed_comm_ms", (slowest->exposed_s + slowest->idle_s) * 1e3},
          {"slowed_ms", 0.0},
          {"smallest_limit_bytes", best.peak_bytes},
          {"smallest_limit_proven", false},
          {"binding", best.why},
          {"one_more_gib_saves_ms", 0.0},
          {"units", pipeline_units(profile, best)},
          {"segments", Json::array()},
          {"waits", Json::array()},
          {"baselines", std::move(baselines)},
          {"notes", notes_of_pipeline(profile, step, best)},
          {"profile_hash", cost::profile_hash(profile)}};
}

}  // namespace

Json mesh_plan_to_json(const cost::Profile& profile, const cost::StepOptions& step, const MeshPlan& plan,
                       const PlannerOptions& options) {
  const MeshCandidate& best = plan.best();
  Json json;
  if (best.data) {
    const Explanation explanation = explain(
        best.data->model, best.data->answer, options.memory_limit,
        {Deadline::after(std::max<Duration>(options.time_limit / 10, kExplainingMesh)), options.cancel});
    json = plan_to_json(best.data->model, best.data->answer, explanation, options);
    json["ranks"] = step.ranks;
    json["profile_hash"] = cost::profile_hash(profile);
    json["solve_s"] = plan.solve_s;
  } else {
    json = pipeline_plan_to_json(profile, step, plan, options);
    json["pipeline"] = pipeline_to_json(best);
  }
  json["mesh"] = to_string(best.mesh);
  json["candidates"] = candidates_to_json(plan);
  return json;
}

}  // namespace rondo::plan
