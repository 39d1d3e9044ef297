#pragma once

#include <string>
#include <vector>

#include "rondo/collective/plan.h"

namespace rondo::collective {

// "send to rank 2: data [0, 1024)".
std::string describe(const Step& step);

// The plans of all ranks as a table for people, round by round, a line a step.
std::string plan_table(const std::vector<Plan>& plans);

}  // namespace rondo::collective
