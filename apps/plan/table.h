#pragma once

#include "rondo/plan/explain.h"

namespace rondo {

// The answer for people, on standard output.
void print_answer(const cost::StepModel& model, const plan::Answer& answer,
                  const plan::Explanation& explanation, std::uint64_t memory_limit);
void print_sweep(const std::vector<plan::SweepPoint>& points);

}  // namespace rondo
