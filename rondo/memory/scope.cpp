#include "rondo/memory/scope.h"

#include <deque>
#include <map>
#include <mutex>
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

namespace {

// Names of units, for the whole process: labels outlive models.
struct UnitNames {
  std::mutex mutex;  // protects the fields below
  std::map<std::string, MemoryUnit, std::less<>> numbers = {{"root", kRootMemoryUnit}};
  std::deque<std::string> names = {"root"};
};

// Never destroyed: memory is released during the destruction of static objects.
UnitNames& unit_names() {
  static auto* const names = new UnitNames();
  return *names;
}

}  // namespace

MemoryUnit memory_unit(std::string_view name) {
  if (name.empty()) return kRootMemoryUnit;
  UnitNames& known = unit_names();
  const std::lock_guard lock(known.mutex);
  const auto found = known.numbers.find(name);
  if (found != known.numbers.end()) return found->second;
  const auto number = static_cast<MemoryUnit>(known.names.size());
  known.names.emplace_back(name);
  known.numbers.emplace(name, number);
  return number;
}

std::string memory_unit_name(MemoryUnit unit) {
  UnitNames& known = unit_names();
  const std::lock_guard lock(known.mutex);
  return known.names.at(unit);
}

void MemoryLabels::leave(const void* owner) {
  for (std::size_t i = entries_.size(); i-- > 0;) {
    if (entries_[i].owner != owner) continue;
    entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(i));
    return;
  }
}

void MemoryLabels::cut(std::size_t depth) {
  if (entries_.size() > depth) entries_.resize(depth);
}

MemoryLabels& memory_labels() {
  thread_local MemoryLabels labels;
  return labels;
}

MemoryMoment& memory_moment() {
  thread_local MemoryMoment moment;
  return moment;
}

MemoryScope::MemoryScope(MemoryCategory category) : MemoryScope(category, memory_labels().innermost().unit) {}

MemoryScope::MemoryScope(MemoryCategory category, MemoryUnit unit) : depth_(memory_labels().depth()) {
  memory_labels().enter(this, {category, unit});
}

}  // namespace rondo
