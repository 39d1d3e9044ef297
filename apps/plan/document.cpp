#include "apps/plan/document.h"

#include <nlohmann/json.hpp>

#include "rondo/base/text.h"

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
  Json blocks = Json::array();
  for (const simulate::BlockRecord& b : timeline.blocks) {
    const cost::Job& job = model.jobs[static_cast<std::size_t>(b.job)];
    blocks.push_back({{"collective", cost::name(cost::collective(job.kind))},
                      {"purpose", cost::name(job.kind)},
                      {"unit", model.profile.units[static_cast<std::size_t>(job.unit)].name},
                      {"index", b.index},
                      {"bytes", job.block_bytes(b.index)},
                      {"slot", b.slot},
                      {"begin_ms", b.begin_s * 1e3},
                      {"end_ms", b.end_s * 1e3}});
  }
  return {{"slots", std::move(slots)}, {"blocks", std::move(blocks)}};
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
  summary.erase("blocks");
  return {{"title", str("Plan of ", model.profile.model)},
          {"planner",
           {{"summary", std::move(summary)},
            {"timeline", timeline_to_json(model, timeline)},
            {"sweep", sweep_to_json(sweep)}}}};
}

}  // namespace rondo
