#pragma once

#include <cstddef>

namespace rondo::plan {

// Units, slots and jobs are numbered by int (some numbers are negative); containers want this.
inline std::size_t index(int number) { return static_cast<std::size_t>(number); }

}  // namespace rondo::plan
