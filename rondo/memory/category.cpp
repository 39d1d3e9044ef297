#include "rondo/memory/category.h"

#include <numeric>

namespace rondo {

std::string_view to_string(MemoryCategory category) {
  switch (category) {
    case MemoryCategory::parameters:
      return "parameters";
    case MemoryCategory::gradients:
      return "gradients";
    case MemoryCategory::optimizer_state:
      return "optimizer_state";
    case MemoryCategory::activations:
      return "activations";
    case MemoryCategory::communication:
      return "communication";
    case MemoryCategory::temporaries:
      return "temporaries";
    case MemoryCategory::other:
      break;
  }
  return "other";
}

std::uint64_t total_of(const BytesByCategory& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0});
}

}  // namespace rondo
