#include "rondo/observe/memory_observer.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "rondo/backend/memory/tracked_memory.h"
#include "rondo/nn/unit_state.h"

namespace rondo {
namespace {

// Returns the value of a line such as "RssAnon:    1234 kB"; 0 if the line has another name.
Bytes kilobytes_of(const std::string& line, std::string_view name) {
  if (!line.starts_with(name) || line.size() <= name.size() || line[name.size()] != ':') return {};
  return KiB(std::strtoull(line.c_str() + name.size() + 1, nullptr, 10));
}

// Returns the sum of the lines of /proc/self/status with these names.
Bytes status_sum(std::initializer_list<std::string_view> names) {
  std::ifstream status("/proc/self/status");
  Bytes total;
  for (std::string line; std::getline(status, line);) {
    for (const std::string_view name : names) total = total + kilobytes_of(line, name);
  }
  return total;
}

}  // namespace

Bytes peak_rss() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return KiB(static_cast<std::uint64_t>(usage.ru_maxrss));
}

ProcessMemory process_memory() {
  ProcessMemory memory;
  std::ifstream rollup("/proc/self/smaps_rollup");
  for (std::string line; std::getline(rollup, line);) {
    memory.rss = memory.rss + kilobytes_of(line, "Rss");
    memory.pss = memory.pss + kilobytes_of(line, "Pss");
  }
  memory.peak_rss = std::max(peak_rss(), memory.rss);
  return memory;
}

Bytes private_memory() { return status_sum({"RssAnon"}); }

Bytes MemoryMeter::sample() {
  peak_ = std::max(peak_, tracked_ ? tracked_() : status_sum({"RssAnon", "RssShmem"}));
  return peak_;
}

Bytes MemoryMeter::sample_pss() {
  peak_pss_ = std::max(peak_pss_, process_memory().pss);
  return peak_pss_;
}

namespace {

TraceCounter counter_of(const BytesByCategory& bytes, std::int64_t time_ns) {
  TraceCounter counter{.name = "memory", .time_ns = time_ns, .step = memory_moment().step, .values = {}};
  for (std::size_t i = 0; i < kMemoryCategories; ++i) {
    counter.values.emplace_back(to_string(static_cast<MemoryCategory>(i)), bytes[i]);
  }
  return counter;
}

}  // namespace

void MemoryObserver::label_parameters(const torch::nn::Module& model) {
  for (const at::Tensor& buffer : model.buffers()) label_memory(buffer, {MemoryCategory::parameters});
  // Outer units come before the units inside them.
  for (const UnitState* unit : units_of(model)) {
    Known& known = units_[unit];
    known = {memory_unit(unit->name()), {}};
    for (const at::Tensor& buffer : unit->module().buffers()) {
      label_memory(buffer, {MemoryCategory::parameters, known.number});
    }
  }
  for (const ModelUnit& unit : partition_into_units(model)) {
    const MemoryUnit number = memory_unit(unit.name);
    for (const ModelTensor& parameter : unit.parameters) {
      unit_of_[parameter.name] = number;
      if (unit.state != nullptr) units_[unit.state].parameters.push_back(parameter.tensor);
      label_memory(parameter.tensor, {MemoryCategory::parameters, number});
    }
  }
}

void MemoryObserver::label_gradients(const torch::nn::Module& model) {
  for (const auto& parameter : model.named_parameters()) {
    const at::Tensor& gradient = parameter.value().grad();
    if (!gradient.defined()) continue;
    const auto found = unit_of_.find(parameter.key());
    label_memory(gradient,
                 {MemoryCategory::gradients, found == unit_of_.end() ? kRootMemoryUnit : found->second});
  }
}

void MemoryObserver::enter_phase(std::int64_t step, const char* phase, MemoryCategory category) {
  if (!in_phase_) depth_ = memory_labels().depth();
  in_phase_ = true;
  sample();
  memory_labels().cut(depth_);
  memory_labels().enter(this, {category, kRootMemoryUnit});
  memory_moment() = {step, phase};
  ++phases_;
  moment_ = memory_moment();
  category_ = category;
  thread_ = std::this_thread::get_id();
  numbers_ = ReplicaIdentity();
}

void MemoryObserver::join_phase() {
  const std::thread::id self = std::this_thread::get_id();
  if (!in_phase_ || self == thread_) return;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(joined_[self], phases_) == phases_) return;
  }
  numbers_.enter();
  memory_labels().cut(0);
  memory_labels().enter(this, {category_, kRootMemoryUnit});
  memory_moment() = moment_;
}

void MemoryObserver::leave_phase() {
  if (!in_phase_) return;
  memory_labels().cut(depth_);
  memory_moment().phase = "";
  in_phase_ = false;
}

void MemoryObserver::trace(std::function<void(const TraceCounter&)> sink) {
  sink_ = std::move(sink);
  if (sink_) tracker_.take_interval();
}

void MemoryObserver::pre_forward(UnitState& unit) {
  sample();
  enter(unit, MemoryCategory::activations);
}

void MemoryObserver::post_forward(UnitState& unit) { leave(unit); }

void MemoryObserver::pre_backward(UnitState& unit) {
  join_phase();
  sample();
  enter(unit, MemoryCategory::temporaries);
}

void MemoryObserver::post_backward(UnitState& unit) {
  const Known& known = units_[&unit];
  for (const at::Tensor& parameter : known.parameters) {
    label_memory(parameter.grad(), {MemoryCategory::gradients, known.number});
  }
  leave(unit);
}

void MemoryObserver::pre_recompute(UnitState& unit) { enter(unit, MemoryCategory::activations); }

void MemoryObserver::post_recompute(UnitState& unit) { leave(unit); }

void MemoryObserver::enter(const UnitState& unit, MemoryCategory category) {
  memory_labels().enter(&unit, {category, units_[&unit].number});
}

void MemoryObserver::leave(const UnitState& unit) {
  sample();
  memory_labels().leave(&unit);
}

void MemoryObserver::sample() {
  if (!sink_) return;
  const MemoryInterval interval = tracker_.take_interval();
  sink_(counter_of(interval.peak, interval.peak_time_ns));
  sink_(counter_of(interval.now, interval.now_ns));
}

}  // namespace rondo
