#include "apps/plan/answer.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "apps/common/command_line.h"
#include "rondo/base/bytes.h"
#include "rondo/base/text.h"
#include "rondo/pipeline/drawing.h"

namespace rondo {

using Json = nlohmann::ordered_json;

Json timeline_to_json(const cost::StepModel& model, const simulate::Timeline& timeline) {
  Json slots = Json::array();
  for (std::size_t i = 0; i < timeline.slots.size(); ++i) {
    const simulate::SlotRecord& s = timeline.slots[i];
    slots.push_back({{"name", plan::slot_name(model, static_cast<int>(i))},
                     {"ready_ms", s.ready_s * 1e3},
                     {"begin_ms", s.begin_s * 1e3},
                     {"end_ms", s.end_s * 1e3},
                     {"memory",
                      {{"persistent", s.memory.persistent},
                       {"activations", s.memory.activations},
                       {"workspace", s.memory.workspace},
                       {"gathered", s.memory.gathered},
                       {"gradients", s.memory.gradients}}}});
  }
  Json segments = Json::array();
  for (const simulate::SegmentRecord& b : timeline.segments) {
    const cost::Job& job = model.jobs[static_cast<std::size_t>(b.job)];
    segments.push_back({{"collective", cost::name(cost::collective(job.kind))},
                        {"purpose", cost::name(job.kind)},
                        {"unit", model.profile.units[static_cast<std::size_t>(job.unit)].name},
                        {"index", b.index},
                        {"bytes", job.segment_bytes(b.index)},
                        {"slot", b.slot},
                        {"begin_ms", b.begin_s * 1e3},
                        {"end_ms", b.end_s * 1e3}});
  }
  return {{"slots", std::move(slots)}, {"segments", std::move(segments)}};
}

Json sweep_to_json(const std::vector<plan::SweepPoint>& sweep) {
  Json points = Json::array();
  for (const plan::SweepPoint& point : sweep) {
    Json baselines = Json::object();
    for (const plan::Baseline& b : point.answer.baselines)
      baselines[b.name] = b.result.fits ? Json(b.result.step_s * 1e3) : Json(nullptr);
    points.push_back({{"memory_limit_bytes", point.limit},
                      {"step_ms", point.answer.result.step_s * 1e3},
                      {"lower_bound_ms", point.answer.lower_bound_s * 1e3},
                      {"gap", point.answer.gap},
                      {"peak_bytes", point.answer.result.peak_bytes},
                      {"baselines", std::move(baselines)}});
  }
  return points;
}

Json planner_document(const cost::StepModel& model, const Json& plan, const plan::PlanResult& answer,
                      std::uint64_t memory_limit, const std::vector<plan::SweepPoint>& sweep) {
  simulate::Timeline timeline;
  simulate::simulate_step(model, answer.plan, answer.feasible ? memory_limit : answer.floor.bytes, &timeline);
  Json summary = plan;
  summary.erase("segments");
  return {{"title", str("Plan of ", model.profile.model)},
          {"planner",
           {{"summary", std::move(summary)},
            {"timeline", timeline_to_json(model, timeline)},
            {"sweep", sweep_to_json(sweep)}}}};
}

namespace {

std::string size(std::uint64_t bytes) { return to_string(Bytes{bytes}); }

// Adjacent units with the same choice share a line.
void print_units(const cost::StepModel& model, const plan::PlanResult& answer,
                 const plan::Explanation& explanation) {
  std::printf("\n%-34s %-24s %s\n", "units", "choice", "why");
  for (int from = 0; from < model.units();) {
    int to = from;
    const auto choice = answer.plan.choices[static_cast<std::size_t>(from)];
    while (to + 1 < model.units() && answer.plan.choices[static_cast<std::size_t>(to) + 1] == choice) ++to;
    const auto& units = model.profile.units;
    const std::string& first = units[static_cast<std::size_t>(from)].name;
    const std::string names =
        shown(from == to ? first : str(first, " .. ", units[static_cast<std::size_t>(to)].name));
    std::printf("%-34s %-24s %s\n", names.c_str(), describe(choice).c_str(),
                shown(explanation.reasons[static_cast<std::size_t>(from)]).c_str());
    from = to + 1;
  }
}

// Meshes that were not evaluated share a line, by reason.
void print_candidates(const plan::MeshPlan& plan) {
  std::printf("%-44s %12s %12s %12s  %s\n", "mesh", "step ms", "bound ms", "peak", "");
  std::map<std::string, std::pair<std::string, int>> others;
  for (const plan::MeshCandidate& each : plan.candidates) {
    if (each.peak_bytes == 0) {
      auto& [first, count] = others[each.why];
      if (count++ == 0) first = each.name();
      continue;
    }
    const std::string step = each.fits ? str(std::round(each.step_s * 1e6) / 1e3) : "-";
    std::printf("%-44s %12s %12.3f %12s  %s\n", each.name().c_str(), step.c_str(), each.lower_bound_s * 1e3,
                size(each.peak_bytes).c_str(), each.why.c_str());
  }
  for (const auto& [why, those] : others) {
    const std::string more = those.second > 1 ? str(" and ", those.second - 1, " more") : "";
    std::printf("%-44s %12s  %s\n", str(those.first, more).c_str(), "-", why.c_str());
  }
}

void print_stages(const plan::MeshCandidate& best) {
  const plan::PipelinePlan& plan = *best.pipeline;
  const pipeline::Schedule& schedule = plan.forecast.schedule;
  std::printf("\n%-6s %-44s %-8s %12s %12s %12s\n", "stage", "layers", "choice", "rank", "busy ms", "peak");
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    const auto at = static_cast<std::size_t>(stage);
    const auto begin = static_cast<std::size_t>(plan.choice.first[at]);
    const std::size_t end = at + 1 < plan.choice.first.size()
                                ? static_cast<std::size_t>(plan.choice.first[at + 1])
                                : best.layers.size();
    std::size_t again = 0;
    for (std::size_t layer = begin; layer < end; ++layer) again += plan.choice.checkpointed[layer] ? 1 : 0;
    const auto rank = static_cast<std::size_t>(schedule.rank_of_stage[at]);
    std::string names = best.layers[begin].name;
    if (end - begin > 1) names += str(" .. ", best.layers[end - 1].name);
    if (again > 0) names += str(" (", again, " checkpointed)");
    std::printf("%-6d %-44s %-8s %12zu %12.3f %12s\n", stage, shown(names).c_str(),
                std::string(cost::name(plan.choice.strategies[rank])).c_str(), rank,
                plan.forecast.ranks[rank].busy_s * 1e3, size(plan.forecast.ranks[rank].peak_bytes).c_str());
  }
  std::printf("\n%s\n", draw(schedule, plan.forecast.timeline, 120).c_str());
}

}  // namespace

void print_meshes(const plan::MeshPlan& plan, std::uint64_t memory_limit) {
  print_candidates(plan);
  const plan::MeshCandidate& best = plan.best();
  if (!best.fits) return;
  std::printf("\n%s, batches of %llu samples a replica\n", best.name().c_str(),
              static_cast<unsigned long long>(best.batch_size));
  if (best.pipeline) {
    print_stages(best);
  } else {
    print_answer(best.data->model, best.data->answer,
                 explain(best.data->model, best.data->answer, memory_limit), memory_limit);
  }
}

void print_answer(const cost::StepModel& model, const plan::PlanResult& answer,
                  const plan::Explanation& explanation, std::uint64_t memory_limit) {
  for (const std::string& note : model.notes) std::printf("note: %s\n", shown(note).c_str());
  if (!answer.feasible) return;
  const auto& r = answer.result;
  std::printf(
      "step        %.3f ms: compute %.3f, slowed down by %.3f, exposed communication %.3f (of %.3f)\n",
      r.step_s * 1e3, r.compute_s * 1e3, r.slowed_s * 1e3, r.exposed_s * 1e3, r.communication_s * 1e3);
  std::printf("bound       no plan is faster than %.3f ms: gap %.3f %%\n", answer.lower_bound_s * 1e3,
              answer.gap * 100);
  std::printf("memory      peak %s of %s, in %s; the least that any plan needs is %s\n",
              size(r.peak_bytes).c_str(), size(memory_limit).c_str(),
              shown(plan::slot_name(model, r.peak_slot)).c_str(), size(answer.floor.bytes).c_str());
  std::printf("solver      %s, %.2f s\n", answer.solver.c_str(), answer.solve_s);
  std::printf("binds       %s\n", shown(explanation.binding).c_str());
  if (explanation.one_more_gib_saves_s > 1e-6)
    std::printf("+1 GiB      saves about %.3f ms at this limit\n", explanation.one_more_gib_saves_s * 1e3);
  print_units(model, answer, explanation);
  std::printf("\n%-34s %12s %14s\n", "baseline", "step ms", "against plan");
  for (const plan::Baseline& b : answer.baselines) {
    if (b.result.fits) {
      std::printf("%-34s %12.3f %+13.2f %%\n", b.name.c_str(), b.result.step_s * 1e3,
                  (b.result.step_s / r.step_s - 1) * 100);
    } else {
      std::printf("%-34s %12s  needs %s\n", b.name.c_str(), "-", size(b.result.peak_bytes).c_str());
    }
  }
}

void print_sweep(const std::vector<plan::SweepPoint>& points) {
  std::printf("\n%12s %12s %12s %8s %12s  %s\n", "limit", "plan ms", "bound ms", "gap %", "baseline ms",
              "best baseline");
  for (const plan::SweepPoint& point : points) {
    const plan::Baseline* best = nullptr;
    for (const plan::Baseline& b : point.answer.baselines) {
      if (b.result.fits && (best == nullptr || b.result.step_s < best->result.step_s)) best = &b;
    }
    std::printf("%12s %12.3f %12.3f %8.3f %12.3f  %s\n", size(point.limit).c_str(),
                point.answer.result.step_s * 1e3, point.answer.lower_bound_s * 1e3, point.answer.gap * 100,
                best != nullptr ? best->result.step_s * 1e3 : 0,
                best != nullptr ? best->name.c_str() : "none fits");
  }
}

}  // namespace rondo
