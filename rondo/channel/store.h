#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rondo/base/cancel.h"
#include "rondo/base/time.h"

namespace rondo {

// A small key-value store shared by all ranks of a job, for the rendezvous rather than for tensors. Values
// are bytes. Every method may be called from any thread and, if the implementation is shared, from any
// process.
class Store {
 public:
  virtual ~Store() = default;

  // Creates or replaces `key`.
  virtual void set(std::string_view key, std::string_view value) = 0;
  // Blocks until `key` is set and returns its value. Throws TimeoutError naming the key, or CancelledError.
  virtual std::string get(std::string_view key, const Wait& wait) = 0;
  // Returns the value of `key` if it is set now.
  virtual std::optional<std::string> try_get(std::string_view key) = 0;
  // Adds `delta` to the decimal number stored at `key` (0 when absent) and returns the sum; atomic.
  virtual long long add(std::string_view key, long long delta) = 0;
  // Sets `key` to `desired` if it holds `expected` (or is absent and `expected` is empty); returns the value
  // afterwards; atomic.
  virtual std::string compare_set(std::string_view key, std::string_view expected,
                                  std::string_view desired) = 0;
  // Removes `key`; returns whether it was set.
  virtual bool remove(std::string_view key) = 0;
  // Returns the number of keys.
  virtual long long size() = 0;
};

// A store inside one process: for ranks as threads, and jobs of one process.
class MemoryStore final : public Store {
 public:
  void set(std::string_view key, std::string_view value) override;
  std::string get(std::string_view key, const Wait& wait) override;
  std::optional<std::string> try_get(std::string_view key) override;
  long long add(std::string_view key, long long delta) override;
  std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired) override;
  bool remove(std::string_view key) override;
  long long size() override;

 private:
  std::mutex mutex_;  // protects values_
  std::condition_variable changed_;
  std::map<std::string, std::string, std::less<>> values_;
};

// Blocks until `rank` has set `key`, and returns the value. Throws TimeoutError that names the rank and
// `subject`, the subject of the value, if it is not set within `timeout`. Errors of the store that name ranks
// pass unchanged.
std::string value_of_rank(Store& store, const std::string& key, int rank, const std::string& subject,
                          Duration timeout);

// Returns the ranks of a group of `size` that have not set `key_of(rank)` yet.
std::vector<int> ranks_without_value(Store& store, int size, const std::function<std::string(int)>& key_of);

}  // namespace rondo
