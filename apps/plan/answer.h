#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "rondo/plan/explain.h"
#include "rondo/plan/mesh/mesh_plan.h"

namespace rondo {

// Returns the data of a plan's page (apps/report/page/planner.js): memory by slot with its parts, the
// timeline of compute and link, the baselines, the units, and, if a sweep was requested, step time by limit.
nlohmann::ordered_json planner_document(const cost::StepModel& model, const nlohmann::ordered_json& plan,
                                        const plan::PlanResult& answer, std::uint64_t memory_limit,
                                        const std::vector<plan::SweepPoint>& sweep);

// Returns the slots and segments of a simulated step:
// {slots: [{name, ready_ms, begin_ms, end_ms, memory: {...}}],
//  segments: [{collective, unit, index, bytes, slot, begin_ms, end_ms}]}.
nlohmann::ordered_json timeline_to_json(const cost::StepModel& model, const simulate::Timeline& timeline);

// Returns [{memory_limit_bytes, step_ms, lower_bound_ms, gap, peak_bytes, baselines}].
nlohmann::ordered_json sweep_to_json(const std::vector<plan::SweepPoint>& sweep);

// Prints the answer as text to standard output.
void print_answer(const cost::StepModel& model, const plan::PlanResult& answer,
                  const plan::Explanation& explanation, std::uint64_t memory_limit);
// Prints the evaluated meshes, and the plan on the best one.
void print_meshes(const plan::MeshPlan& plan, std::uint64_t memory_limit);
void print_sweep(const std::vector<plan::SweepPoint>& points);

}  // namespace rondo
