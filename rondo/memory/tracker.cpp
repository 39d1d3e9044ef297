#include "rondo/memory/tracker.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "rondo/base/replica.h"
#include "rondo/base/time.h"
#include "rondo/memory/limit_error.h"
#include "rondo/memory/limit_text.h"

namespace rondo {
namespace {

MemoryUsage usage_of(const std::vector<BytesByCategory>& by_unit) {
  MemoryUsage usage;
  for (std::size_t unit = 0; unit < by_unit.size(); ++unit) {
    const std::uint64_t of_unit = total_of(by_unit[unit]);
    if (of_unit == 0) continue;
    usage.total += of_unit;
    usage.units.push_back({memory_unit_name(static_cast<MemoryUnit>(unit)), by_unit[unit]});
    for (std::size_t i = 0; i < kMemoryCategories; ++i) usage.categories[i] += by_unit[unit][i];
  }
  return usage;
}

}  // namespace

BytesByCategory MemoryUsage::of_unit(std::string_view name) const {
  for (const Unit& unit : units) {
    if (unit.name == name) return unit.categories;
  }
  return {};
}

void MemoryTracker::add(const void* block, std::uint64_t bytes) {
  const MemoryLabel label = memory_labels().innermost();
  const std::lock_guard lock(mutex_);
  require_room(label, bytes);
  if (const auto lost = blocks_.insert(block, {bytes, label})) shrink(lost->label, lost->bytes);
  grow(label, bytes);
}

bool MemoryTracker::remove(const void* block) noexcept {
  const std::lock_guard lock(mutex_);
  const auto removed = blocks_.remove(block);
  if (removed) shrink(removed->label, removed->bytes);
  return removed.has_value();
}

bool MemoryTracker::resize(const void* block, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  BlockTable::Block* const found = blocks_.find(block);
  if (found == nullptr) return false;
  if (bytes > found->bytes) {
    require_room(found->label, bytes - found->bytes);
    grow(found->label, bytes - found->bytes);
  } else {
    shrink(found->label, found->bytes - bytes);
  }
  found->bytes = bytes;
  return true;
}

bool MemoryTracker::relabel(const void* block, MemoryLabel label) {
  const std::lock_guard lock(mutex_);
  BlockTable::Block* const found = blocks_.find(block);
  if (found == nullptr) return false;
  // The total stays, so a largest moment that is now goes on and takes the new label with it.
  at(found->label) -= found->bytes;
  by_category_[static_cast<std::size_t>(found->label.category)] -= found->bytes;
  found->label = label;
  at(label) += found->bytes;
  by_category_[static_cast<std::size_t>(label.category)] += found->bytes;
  return true;
}

void MemoryTracker::charge(MemoryLabel label, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  require_room(label, bytes);
  grow(label, bytes);
}

void MemoryTracker::discharge(MemoryLabel label, std::uint64_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  shrink(label, bytes);
}

void MemoryTracker::set_limit(std::optional<Bytes> limit) {
  const std::lock_guard lock(mutex_);
  limit_ = limit;
}

std::optional<Bytes> MemoryTracker::limit() const {
  const std::lock_guard lock(mutex_);
  return limit_;
}

std::uint64_t MemoryTracker::total() const {
  const std::lock_guard lock(mutex_);
  return total_;
}

std::uint64_t MemoryTracker::peak_total() const {
  const std::lock_guard lock(mutex_);
  return peak_total_;
}

MemoryUsage MemoryTracker::usage() const {
  const std::lock_guard lock(mutex_);
  return usage_of(by_unit_);
}

MemoryPeak MemoryTracker::peak() const {
  const std::lock_guard lock(mutex_);
  return {.usage = usage_of(peak_is_now_ ? by_unit_ : peak_by_unit_),
          .step = peak_moment_.step,
          .phase = peak_moment_.phase,
          .unit = memory_unit_name(peak_unit_),
          .time_ns = peak_time_ns_};
}

void MemoryTracker::reset_peak() {
  const std::lock_guard lock(mutex_);
  peak_total_ = total_;
  peak_moment_ = memory_moment();
  peak_unit_ = memory_labels().innermost().unit;
  peak_time_ns_ = monotonic_ns();
  peak_is_now_ = true;
}

MemoryInterval MemoryTracker::take_interval() {
  const std::lock_guard lock(mutex_);
  settle_interval();
  const std::int64_t now = monotonic_ns();
  const MemoryInterval interval = {.peak_time_ns = interval_time_ns_ == 0 ? now : interval_time_ns_,
                                   .peak = interval_peak_,
                                   .now_ns = now,
                                   .now = by_category_};
  interval_total_ = total_;
  interval_time_ns_ = now;
  interval_is_now_ = true;
  return interval;
}

std::uint64_t MemoryTracker::take_largest_total() {
  const std::lock_guard lock(mutex_);
  return std::exchange(largest_total_, total_);
}

void MemoryTracker::grow(MemoryLabel label, std::uint64_t bytes) {
  at(label) += bytes;
  by_category_[static_cast<std::size_t>(label.category)] += bytes;
  total_ += bytes;
  largest_total_ = std::max(largest_total_, total_);
  if (total_ > interval_total_) {
    interval_total_ = total_;
    interval_time_ns_ = monotonic_ns();
    interval_is_now_ = true;
  }
  if (total_ > peak_total_) {
    peak_total_ = total_;
    peak_moment_ = memory_moment();
    peak_unit_ = memory_labels().innermost().unit;
    peak_time_ns_ = monotonic_ns();
    peak_is_now_ = true;
  }
}

void MemoryTracker::shrink(MemoryLabel label, std::uint64_t bytes) {
  settle_peak();
  settle_interval();
  at(label) -= bytes;
  by_category_[static_cast<std::size_t>(label.category)] -= bytes;
  total_ -= bytes;
}

void MemoryTracker::require_room(MemoryLabel label, std::uint64_t bytes) const {
  if (!limit_ || total_ + bytes <= limit_->count) return;
  throw MemoryLimitError(limit_text(Bytes{bytes}, label, memory_moment(), *limit_, usage_of(by_unit_)),
                         Bytes{bytes}, *limit_);
}

std::uint64_t& MemoryTracker::at(MemoryLabel label) {
  if (label.unit >= by_unit_.size()) by_unit_.resize(label.unit + 1);
  return by_unit_[label.unit][static_cast<std::size_t>(label.category)];
}

void MemoryTracker::settle_peak() {
  if (!peak_is_now_) return;
  peak_is_now_ = false;
  peak_by_unit_ = by_unit_;
}

void MemoryTracker::settle_interval() {
  if (!interval_is_now_) return;
  interval_is_now_ = false;
  interval_peak_ = by_category_;
}

namespace {

// One for each number that a replica ever had.
struct Trackers {
  std::mutex mutex;  // protects the list, not the trackers
  std::vector<std::unique_ptr<MemoryTracker>> by_replica;

  MemoryTracker& of(int replica) {
    const std::lock_guard lock(mutex);
    const auto at = static_cast<std::size_t>(replica);
    while (by_replica.size() <= at) by_replica.push_back(std::make_unique<MemoryTracker>());
    return *by_replica[at];
  }
  std::vector<MemoryTracker*> all() {
    const std::lock_guard lock(mutex);
    std::vector<MemoryTracker*> result;
    for (const auto& tracker : by_replica) result.push_back(tracker.get());
    return result;
  }
};

// Never destroyed: memory is released while static objects are being torn down.
Trackers& trackers() {
  static auto* const instance = new Trackers();
  return *instance;
}

}  // namespace

MemoryTracker& replica_memory_tracker() {
  thread_local std::pair<int, MemoryTracker*> last{-1, nullptr};
  if (const int replica = this_replica(); last.first != replica) last = {replica, &trackers().of(replica)};
  return *last.second;
}

void begin_replica_tracker(int replica) {
  if (replica != 0) trackers().of(replica).set_limit(trackers().of(0).limit());
}

bool any_replica_tracker(const std::function<bool(MemoryTracker&)>& apply) {
  MemoryTracker& own = replica_memory_tracker();
  if (apply(own)) return true;
  const std::vector<MemoryTracker*> all = trackers().all();
  return std::any_of(all.begin(), all.end(),
                     [&](MemoryTracker* tracker) { return tracker != &own && apply(*tracker); });
}

MemoryCharge::MemoryCharge(MemoryCategory category, Bytes bytes, std::optional<MemoryUnit> unit)
    : tracker_(&replica_memory_tracker()),
      label_{category, unit.value_or(memory_labels().innermost().unit)},
      bytes_(bytes.count) {
  tracker_->charge(label_, bytes_);
}

MemoryCharge::MemoryCharge(MemoryCharge&& other) noexcept
    : tracker_(other.tracker_), label_(other.label_), bytes_(std::exchange(other.bytes_, 0)) {}

MemoryCharge& MemoryCharge::operator=(MemoryCharge&& other) noexcept {
  std::swap(tracker_, other.tracker_);
  std::swap(label_, other.label_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MemoryCharge::~MemoryCharge() {
  if (bytes_ > 0) tracker_->discharge(label_, bytes_);
}

}  // namespace rondo
