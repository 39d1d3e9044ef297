#pragma once

#include <string>

#include "rondo/pipeline/simulation.h"

namespace rondo::pipeline {

// Draws one line per rank and one column per unit of time. A forward pass is the number of its micro-batch
// ("0"), a backward pass "b0" (split: "i0" and "w0"), idle time dots. `columns` is the length of the longest
// line. Slots shorter than a column are drawn as one column.
std::string draw(const Schedule& schedule, const Simulation& simulation, int columns = 160);
// Draws the ranks' slots over time as SVG, coloured by kind.
std::string to_svg(const Schedule& schedule, const Simulation& simulation);

}  // namespace rondo::pipeline
