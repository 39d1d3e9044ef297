#include "rondo/memory/tracker.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "rondo/base/replica.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"
#include "rondo/memory/scope.h"

namespace rondo {
namespace {

constexpr int kFirstBits = 10;

}  // namespace

BlockTable::BlockTable() : slots_(std::size_t{1} << kFirstBits), shift_(64 - kFirstBits) {}

// Fibonacci hashing (Knuth, The Art of Computer Programming, volume 3, 6.4); the lowest bits of addresses are
// all zero.
std::size_t BlockTable::home(const void* address) const {
  const auto number = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(address));
  return static_cast<std::size_t>(((number >> 4) * 0x9E3779B97F4A7C15ULL) >> shift_);
}

std::size_t BlockTable::place(const void* address) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = home(address);
  while (slots_[at].address != nullptr && slots_[at].address != address) at = (at + 1) & mask;
  return at;
}

std::optional<BlockTable::Block> BlockTable::insert(const void* address, const Block& block) {
  if (2 * (size_ + 1) > slots_.size()) grow();
  Slot& slot = slots_[place(address)];
  if (slot.address != nullptr) return std::exchange(slot.block, block);
  slot = {address, block};
  ++size_;
  return std::nullopt;
}

std::optional<BlockTable::Block> BlockTable::remove(const void* address) {
  std::size_t hole = place(address);
  if (slots_[hole].address == nullptr) return std::nullopt;
  const Block removed = slots_[hole].block;
  // Moves displaced entries back into the hole, so that no search ends too early (Knuth, algorithm 6.4R).
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t at = (hole + 1) & mask; slots_[at].address != nullptr; at = (at + 1) & mask) {
    const std::size_t wanted = home(slots_[at].address);
    if (((at - wanted) & mask) < ((at - hole) & mask)) continue;
    slots_[hole] = slots_[at];
    hole = at;
  }
  slots_[hole] = {};
  --size_;
  return removed;
}

BlockTable::Block* BlockTable::find(const void* address) {
  Slot& slot = slots_[place(address)];
  return slot.address == nullptr ? nullptr : &slot.block;
}

void BlockTable::grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  --shift_;
  for (const Slot& slot : old) {
    if (slot.address != nullptr) slots_[place(slot.address)] = slot;
  }
}

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
  // The total is unchanged, so a peak that lasts until now gets the new label too.
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

// One tracker for each replica number that was ever used.
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

// Never destroyed: memory is released during the destruction of static objects.
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

namespace {

constexpr std::size_t kUnitsNamed = 8;

using Amount = std::pair<std::uint64_t, std::string>;

// Formats "1.5 GiB activations, 96.0 MiB parameters".
std::string list(std::vector<Amount> amounts, std::size_t most) {
  std::stable_sort(amounts.begin(), amounts.end(),
                   [](const Amount& a, const Amount& b) { return a.first > b.first; });
  std::vector<std::string> parts;
  std::uint64_t rest = 0;
  for (const auto& [bytes, what] : amounts) {
    if (parts.size() < most) {
      parts.push_back(str(to_string(Bytes{bytes}), " ", what));
    } else {
      rest += bytes;
    }
  }
  if (rest > 0) parts.push_back(str(to_string(Bytes{rest}), " in smaller parts"));
  return join(parts, ", ");
}

const char* remedy(MemoryCategory largest) {
  switch (largest) {
    case MemoryCategory::activations:
    case MemoryCategory::temporaries:
      return "checkpointed activations (--activation-checkpointing all), or a smaller batch with more passes "
             "(--batch-size, --gradient-accumulation-steps)";
    case MemoryCategory::parameters:
    case MemoryCategory::gradients:
    case MemoryCategory::optimizer_state:
      return "a strategy that shards it over more ranks, or a smaller model";
    case MemoryCategory::communication:
      return "smaller buckets (--bucket-size), or fewer gathers in flight";
    case MemoryCategory::other:
      break;
  }
  return "smaller batches (--batch-size, --eval-batch-size)";
}

}  // namespace

std::string limit_text(Bytes wanted, MemoryLabel label, const MemoryMoment& moment, Bytes limit,
                       const MemoryUsage& alive) {
  std::vector<Amount> categories;
  std::size_t largest = kMemoryCategories - 1;
  for (std::size_t i = 0; i < kMemoryCategories; ++i) {
    const std::uint64_t bytes = alive.categories[i];
    if (bytes == 0) continue;
    categories.emplace_back(bytes, to_string(static_cast<MemoryCategory>(i)));
    if (bytes > alive.categories[largest]) largest = i;
  }
  std::vector<Amount> units;
  for (const MemoryUsage::Unit& unit : alive.units) {
    for (std::size_t i = 0; i < kMemoryCategories; ++i) {
      if (unit.categories[i] == 0) continue;
      units.emplace_back(unit.categories[i],
                         str(to_string(static_cast<MemoryCategory>(i)), " of ", unit.name));
    }
  }
  const std::string when = moment.step == 0 && *moment.phase == '\0'
                               ? std::string()
                               : str(", step ", moment.step, *moment.phase == '\0' ? "" : ", ", moment.phase);
  return str("memory limit exceeded: ", to_string(wanted), " of ", to_string(label.category), " for ",
             memory_unit_name(label.unit), when, " requested in addition to ", to_string(Bytes{alive.total}),
             ", the limit of this rank is ", to_string(limit),
             ". In use: ", categories.empty() ? "nothing" : list(std::move(categories), kMemoryCategories),
             ". Largest: ", units.empty() ? "nothing" : list(std::move(units), kUnitsNamed),
             ". Possible remedies: ", remedy(static_cast<MemoryCategory>(largest)),
             "; or a higher limit (--memory-limit)");
}

}  // namespace rondo
