#pragma once

#include "rondo/plan/explain.h"
#include "rondo/plan/mesh/mesh_plan.h"

namespace rondo {

// The answer for people, on standard output.
void print_answer(const cost::StepModel& model, const plan::PlanResult& answer,
                  const plan::Explanation& explanation, std::uint64_t memory_limit);
// What meshes were looked at, and the plan on the best one.
void print_meshes(const plan::MeshPlan& plan, std::uint64_t memory_limit);
void print_sweep(const std::vector<plan::SweepPoint>& points);

}  // namespace rondo
