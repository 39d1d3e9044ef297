#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rondo/base/bytes.h"
#include "rondo/base/error.h"

namespace rondo {

// An allocation would have gone beyond MemoryTracker's limit. The message says what was wanted, what is
// alive, the largest first, and what would help; nothing was allocated.
class MemoryLimitError : public Error {
 public:
  // `wanted`: what the allocation asked for.
  MemoryLimitError(const std::string& message, Bytes wanted, Bytes limit)
      : Error(message), wanted_(wanted), limit_(limit) {}
  Bytes wanted() const { return wanted_; }  // what the allocation asked for
  Bytes limit() const { return limit_; }    // of this process

 private:
  Bytes wanted_;
  Bytes limit_;
};

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

// A unit of the model by number: the same name has the same number for the life of the process.
using MemoryUnit = std::uint32_t;
// What no unit holds ("root").
inline constexpr MemoryUnit kRootMemoryUnit = 0;

// The number of `name`; an empty name is the root's. Any thread; takes a lock.
MemoryUnit memory_unit(std::string_view name);
// The name of that number; "root" for the root. Any thread.
std::string memory_unit_name(MemoryUnit unit);

// What a block of memory is for.
struct MemoryLabel {
  MemoryCategory category = MemoryCategory::other;  // what the block is for
  MemoryUnit unit = kRootMemoryUnit;                // the unit that it belongs to
};

// Where a training is, for the moment of a peak.
struct MemoryMoment {
  std::int64_t step = 0;   // being done, from 1; 0 is before the first
  const char* phase = "";  // "forward", "optimizer": a text that lives as long as the process
};

// The labels that hold on one thread, innermost last.
class MemoryLabels {
 public:
  // Label of what this thread allocates now.
  MemoryLabel innermost() const { return entries_.empty() ? MemoryLabel{} : entries_.back().label; }

  // For labels that begin and end in different calls, as a unit's backward pass: leave() ends the innermost
  // label of `owner`, wherever it lies, since passes through parallel branches need not nest.
  void enter(const void* owner, MemoryLabel label) { entries_.push_back({owner, label}); }
  void leave(const void* owner);  // ends the innermost label of `owner`

  std::size_t depth() const { return entries_.size(); }  // labels that hold now
  // Ends all labels that were entered since depth() was `depth`.
  void cut(std::size_t depth);

 private:
  struct Entry {
    const void* owner;
    MemoryLabel label;
  };
  std::vector<Entry> entries_;
};

// This thread's.
MemoryLabels& memory_labels();
MemoryMoment& memory_moment();  // where this thread's training is

// As long as it lives, what this thread allocates is for `category`, in `unit` or, without one, in the unit
// of the scope around it. Its end also ends labels that an exception left behind inside it.
class MemoryScope {
 public:
  explicit MemoryScope(MemoryCategory category);          // in the unit of the scope around it
  MemoryScope(MemoryCategory category, MemoryUnit unit);  // in that unit
  // In the unit of that name.
  MemoryScope(MemoryCategory category, std::string_view unit) : MemoryScope(category, memory_unit(unit)) {}
  ~MemoryScope() { memory_labels().cut(depth_); }
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

 private:
  std::size_t depth_;
};

}  // namespace rondo
