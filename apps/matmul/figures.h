#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "rondo/kernels/matmul_choice.h"

namespace rondo {

// One process's times and errors, for every shape and form that is measured: {"us": [...], "flops": [...],
// "errors": [...]}. One thread; about 0.2 s.
nlohmann::json measure_products();

// The figures of one choice from what several processes measured with it: the best time of each product
// counts. Throws Error when the processes measured different things.
MatmulFigures combine(const std::vector<nlohmann::json>& processes);

}  // namespace rondo
