#pragma once

#include <string>

namespace rondo::bench {

// Trains an MLP for one step in data parallelism, as a rank of whatever job this process belongs to, and
// appends a line with the monotonic clock's nanoseconds to the file `report`.
void train_first_step(const std::string& report);

}  // namespace rondo::bench
