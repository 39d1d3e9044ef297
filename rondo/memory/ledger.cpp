#include "rondo/memory/ledger.h"

#include <algorithm>
#include <utility>

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

void MemoryLedger::add(const void* block, std::uint64_t bytes) {
  const MemoryLabel label = memory_labels().innermost();
  const std::lock_guard lock(mutex_);
  require_room(label, bytes);
  if (const auto lost = blocks_.insert(block, {bytes, label})) shrink(lost->label, lost->bytes);
  grow(label, bytes);
}

bool MemoryLedger::remove(const void* block) noexcept {
  const std::lock_guard lock(mutex_);
  const auto removed = blocks_.remove(block);
  if (removed) shrink(removed->label, removed->bytes);
  return removed.has_value();
}

void MemoryLedger::resize(const void* block, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  BlockTable::Block* const found = blocks_.find(block);
  if (found == nullptr) return;
  if (bytes > found->bytes) {
    require_room(found->label, bytes - found->bytes);
    grow(found->label, bytes - found->bytes);
  } else {
    shrink(found->label, found->bytes - bytes);
  }
  found->bytes = bytes;
}

void MemoryLedger::relabel(const void* block, MemoryLabel label) {
  const std::lock_guard lock(mutex_);
  BlockTable::Block* const found = blocks_.find(block);
  if (found == nullptr) return;
  // The total stays, so a largest moment that is now goes on and takes the new label with it.
  at(found->label) -= found->bytes;
  by_category_[static_cast<std::size_t>(found->label.category)] -= found->bytes;
  found->label = label;
  at(label) += found->bytes;
  by_category_[static_cast<std::size_t>(label.category)] += found->bytes;
}

void MemoryLedger::charge(MemoryLabel label, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  require_room(label, bytes);
  grow(label, bytes);
}

void MemoryLedger::discharge(MemoryLabel label, std::uint64_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  shrink(label, bytes);
}

void MemoryLedger::set_limit(std::optional<Bytes> limit) {
  const std::lock_guard lock(mutex_);
  limit_ = limit;
}

std::optional<Bytes> MemoryLedger::limit() const {
  const std::lock_guard lock(mutex_);
  return limit_;
}

std::uint64_t MemoryLedger::total() const {
  const std::lock_guard lock(mutex_);
  return total_;
}

std::uint64_t MemoryLedger::peak_total() const {
  const std::lock_guard lock(mutex_);
  return peak_total_;
}

MemoryUsage MemoryLedger::usage() const {
  const std::lock_guard lock(mutex_);
  return usage_of(by_unit_);
}

MemoryPeak MemoryLedger::peak() const {
  const std::lock_guard lock(mutex_);
  return {.usage = usage_of(peak_is_now_ ? by_unit_ : peak_by_unit_),
          .step = peak_moment_.step,
          .phase = peak_moment_.phase,
          .unit = memory_unit_name(peak_unit_),
          .time_ns = peak_time_ns_};
}

void MemoryLedger::reset_peak() {
  const std::lock_guard lock(mutex_);
  peak_total_ = total_;
  peak_moment_ = memory_moment();
  peak_unit_ = memory_labels().innermost().unit;
  peak_time_ns_ = monotonic_ns();
  peak_is_now_ = true;
}

MemoryInterval MemoryLedger::take_interval() {
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

std::uint64_t MemoryLedger::take_largest_total() {
  const std::lock_guard lock(mutex_);
  return std::exchange(largest_total_, total_);
}

void MemoryLedger::grow(MemoryLabel label, std::uint64_t bytes) {
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

void MemoryLedger::shrink(MemoryLabel label, std::uint64_t bytes) {
  settle_peak();
  settle_interval();
  at(label) -= bytes;
  by_category_[static_cast<std::size_t>(label.category)] -= bytes;
  total_ -= bytes;
}

void MemoryLedger::require_room(MemoryLabel label, std::uint64_t bytes) const {
  if (!limit_ || total_ + bytes <= limit_->count) return;
  throw MemoryLimitError(limit_text(Bytes{bytes}, label, memory_moment(), *limit_, usage_of(by_unit_)),
                         Bytes{bytes}, *limit_);
}

std::uint64_t& MemoryLedger::at(MemoryLabel label) {
  if (label.unit >= by_unit_.size()) by_unit_.resize(label.unit + 1);
  return by_unit_[label.unit][static_cast<std::size_t>(label.category)];
}

void MemoryLedger::settle_peak() {
  if (!peak_is_now_) return;
  peak_is_now_ = false;
  peak_by_unit_ = by_unit_;
}

void MemoryLedger::settle_interval() {
  if (!interval_is_now_) return;
  interval_is_now_ = false;
  interval_peak_ = by_category_;
}

MemoryLedger& process_ledger() {
  static auto* const ledger = new MemoryLedger();
  return *ledger;
}

MemoryCharge::MemoryCharge(MemoryCategory category, Bytes bytes, std::optional<MemoryUnit> unit)
    : label_{category, unit.value_or(memory_labels().innermost().unit)}, bytes_(bytes.count) {
  process_ledger().charge(label_, bytes_);
}

MemoryCharge::MemoryCharge(MemoryCharge&& other) noexcept
    : label_(other.label_), bytes_(std::exchange(other.bytes_, 0)) {}

MemoryCharge& MemoryCharge::operator=(MemoryCharge&& other) noexcept {
  std::swap(label_, other.label_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MemoryCharge::~MemoryCharge() {
  if (bytes_ > 0) process_ledger().discharge(label_, bytes_);
}

}  // namespace rondo
