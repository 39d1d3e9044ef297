#pragma once

#include <string>

#include "rondo/pipeline/simulation.h"

namespace rondo::pipeline {

// A line a rank, a column a unit of time: the number of a micro-batch in its forward pass as "0", in its
// backward pass as "b0" ("i0" and "w0" where it is in two parts), idle time as dots. `columns` is the longest
// line; slots shorter than a column are drawn as one.
std::string draw(const Schedule& schedule, const Simulation& simulation, int columns = 160);
// The same as a picture: SVG of the rank's slots by time, coloured by kind.
std::string to_svg(const Schedule& schedule, const Simulation& simulation);

}  // namespace rondo::pipeline
