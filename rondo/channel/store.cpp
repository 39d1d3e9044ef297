#include "rondo/channel/store.h"

#include <chrono>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {

void MemoryStore::set(std::string_view key, std::string_view value) {
  const std::lock_guard lock(mutex_);
  values_.insert_or_assign(std::string(key), std::string(value));
  changed_.notify_all();
}

std::string MemoryStore::get(std::string_view key, const Wait& wait) {
  // A cancel token cannot wake a condition variable, so a cancellable wait checks it at this interval.
  constexpr auto cancel_check_interval = std::chrono::milliseconds(20);
  std::unique_lock lock(mutex_);
  while (true) {
    const auto found = values_.find(key);
    if (found != values_.end()) return found->second;
    if (wait.cancel != nullptr && wait.cancel->cancelled()) {
      throw CancelledError(str("waiting for key '", key, "' was cancelled"));
    }
    if (wait.deadline.passed()) {
      throw TimeoutError(str("no process set the key '", key, "' in time"), {});
    }
    const TimePoint until = Clock::now() + cancel_check_interval;
    changed_.wait_until(lock, std::min(until, wait.deadline.at()));
  }
}

std::optional<std::string> MemoryStore::try_get(std::string_view key) {
  const std::lock_guard lock(mutex_);
  const auto found = values_.find(key);
  if (found == values_.end()) return std::nullopt;
  return found->second;
}

long long MemoryStore::add(std::string_view key, long long delta) {
  const std::lock_guard lock(mutex_);
  std::string& value = values_[std::string(key)];
  const long long sum = (value.empty() ? 0 : parse_integer(value, str("store key '", key, "'"))) + delta;
  value = std::to_string(sum);
  changed_.notify_all();
  return sum;
}

std::string MemoryStore::compare_set(std::string_view key, std::string_view expected,
                                     std::string_view desired) {
  const std::lock_guard lock(mutex_);
  const auto found = values_.find(key);
  if (found == values_.end()) {
    if (!expected.empty()) return std::string(expected);
    values_.emplace(key, desired);
    changed_.notify_all();
    return std::string(desired);
  }
  if (found->second == expected) {
    found->second = desired;
    changed_.notify_all();
  }
  return found->second;
}

bool MemoryStore::remove(std::string_view key) {
  const std::lock_guard lock(mutex_);
  const auto found = values_.find(key);
  if (found == values_.end()) return false;
  values_.erase(found);
  return true;
}

long long MemoryStore::size() {
  const std::lock_guard lock(mutex_);
  return static_cast<long long>(values_.size());
}

std::string value_of_rank(Store& store, const std::string& key, int rank, const std::string& subject,
                          Duration timeout) {
  try {
    return store.get(key, {Deadline::after(timeout), nullptr});
  } catch (const TimeoutError& e) {
    if (!e.ranks().empty()) throw;
    throw TimeoutError(str("waited ", to_string(timeout), " for rank ", rank, " to announce ", subject,
                           ". Was it started, and does it still run?"),
                       {rank});
  }
}

std::vector<int> ranks_without_value(Store& store, int size, const std::function<std::string(int)>& key_of) {
  std::vector<int> missing;
  for (int rank = 0; rank < size; ++rank) {
    if (!store.try_get(key_of(rank))) missing.push_back(rank);
  }
  return missing;
}

}  // namespace rondo
