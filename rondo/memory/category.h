#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace rondo {

// What memory is for.
enum class MemoryCategory : std::uint8_t {
  parameters,       // and buffers of the model
  gradients,        // of parameters
  optimizer_state,  // moments, master weights
  activations,      // what forward leaves for backward, checkpointed inputs included
  communication,    // gather buffers, buckets, staging
  temporaries,      // workspace, and gradients of activations on their way through backward
  other,            // batches, validation, what nobody labelled
};
inline constexpr std::size_t kMemoryCategories = 7;  // how many there are

// "parameters", "optimizer_state": the names in JSON, traces and messages.
std::string_view to_string(MemoryCategory category);

// A figure in bytes for each category, indexed by it.
using BytesByCategory = std::array<std::uint64_t, kMemoryCategories>;

// The figure of one category.
inline std::uint64_t bytes_of(const BytesByCategory& bytes, MemoryCategory category) {
  return bytes[static_cast<std::size_t>(category)];
}
// The sum over all categories.
std::uint64_t total_of(const BytesByCategory& bytes);

}  // namespace rondo
