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

// The error of an allocation beyond MemoryTracker's limit. The message has the request, the live memory, the
// largest first, and remedies; nothing was allocated.
class MemoryLimitError : public Error {
 public:
  // `wanted` is the size of the request.
  MemoryLimitError(const std::string& message, Bytes wanted, Bytes limit)
      : Error(message), wanted_(wanted), limit_(limit) {}
  Bytes wanted() const { return wanted_; }  // size of the request
  Bytes limit() const { return limit_; }    // limit of this process

 private:
  Bytes wanted_;
  Bytes limit_;
};

// The purposes of memory.
enum class MemoryCategory : std::uint8_t {
  parameters,       // parameters and buffers of the model
  gradients,        // gradients of parameters
  optimizer_state,  // moments, master weights
  activations,      // saved for backward, checkpointed inputs included
  communication,    // gather buffers, buckets, staging
  temporaries,      // workspace, and gradients of activations during backward
  other,            // batches, validation, memory without a label
};
inline constexpr std::size_t kMemoryCategories = 7;  // number of categories

// Returns the name in JSON, traces and messages: "parameters", "optimizer_state".
std::string_view to_string(MemoryCategory category);

// Bytes of each category, indexed by category.
using BytesByCategory = std::array<std::uint64_t, kMemoryCategories>;

// Returns the bytes of one category.
inline std::uint64_t bytes_of(const BytesByCategory& bytes, MemoryCategory category) {
  return bytes[static_cast<std::size_t>(category)];
}
// Returns the sum over all categories.
std::uint64_t total_of(const BytesByCategory& bytes);

// Number of a unit of the model: the same name has the same number during the life of the process.
using MemoryUnit = std::uint32_t;
// Number that stands for memory outside of all units ("root").
inline constexpr MemoryUnit kRootMemoryUnit = 0;

// Returns the number of `name`; an empty name is the root's. Any thread; takes a lock.
MemoryUnit memory_unit(std::string_view name);
// Returns the name of a number; "root" for the root. Any thread.
std::string memory_unit_name(MemoryUnit unit);

// The purpose of a block of memory.
struct MemoryLabel {
  MemoryCategory category = MemoryCategory::other;  // purpose of the block
  MemoryUnit unit = kRootMemoryUnit;                // the unit that the block belongs to
};

// A point of a training, for the moment of a peak.
struct MemoryMoment {
  std::int64_t step = 0;   // current step, from 1; 0 before the first
  const char* phase = "";  // "forward", "optimizer": a static string
};

// The active labels of one thread, innermost last.
class MemoryLabels {
 public:
  // Returns the label of this thread's allocations.
  MemoryLabel innermost() const { return entries_.empty() ? MemoryLabel{} : entries_.back().label; }

  // Enters a label that ends in a different call, for a unit's backward pass: leave() ends the innermost
  // label of `owner`, wherever it is, since passes through parallel branches need not nest.
  void enter(const void* owner, MemoryLabel label) { entries_.push_back({owner, label}); }
  void leave(const void* owner);  // ends the innermost label of `owner`

  std::size_t depth() const { return entries_.size(); }  // number of active labels
  // Ends all labels that were entered since depth() was `depth`.
  void cut(std::size_t depth);

 private:
  struct Entry {
    const void* owner;
    MemoryLabel label;
  };
  std::vector<Entry> entries_;
};

// Returns this thread's labels.
MemoryLabels& memory_labels();
MemoryMoment& memory_moment();  // returns this thread's moment

// A scope that labels this thread's allocations with `category`, and with `unit` or the unit of the enclosing
// scope. Its destructor also ends labels that an exception left behind inside it.
class MemoryScope {
 public:
  explicit MemoryScope(MemoryCategory category);          // in the unit of the enclosing scope
  MemoryScope(MemoryCategory category, MemoryUnit unit);  // in that unit
  // Labels allocations with the unit of that name.
  MemoryScope(MemoryCategory category, std::string_view unit) : MemoryScope(category, memory_unit(unit)) {}
  ~MemoryScope() { memory_labels().cut(depth_); }
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

 private:
  std::size_t depth_;
};

}  // namespace rondo
