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

// A small key-value store that all ranks of a job share; used to meet, not to move tensors. Values are bytes.
// Every method may be called from any thread and, where the implementation is shared, from any process.
class Store {
 public:
  virtual ~Store() = default;

  // Creates or replaces `key`.
  virtual void set(std::string_view key, std::string_view value) = 0;
  // Value of `key`, waiting until somebody has set it. Throws TimeoutError naming the key, or CancelledError.
  virtual std::string get(std::string_view key, const Wait& wait) = 0;
  // Value of `key` if it is there now.
  virtual std::optional<std::string> try_get(std::string_view key) = 0;
  // Adds `delta` to the decimal number stored at `key` (0 when absent) and returns the sum; atomic.
  virtual long long add(std::string_view key, long long delta) = 0;
  // Sets `key` to `desired` if it now holds `expected` (or is absent and `expected` is empty); returns what
  // the key holds afterwards; atomic.
  virtual std::string compare_set(std::string_view key, std::string_view expected,
                                  std::string_view desired) = 0;
  // Whether the key was there.
  virtual bool remove(std::string_view key) = 0;
  // Number of keys.
  virtual long long size() = 0;
};

// Store inside one process: ranks as threads, and jobs of one process.
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

// Returns the value that `rank` has put under `key`, waiting until it is there. Throws TimeoutError that
// names the rank and `subject`, the fact it was to announce, when it has put none within `timeout`. Errors of
// the store that name ranks pass unchanged.
std::string value_of_rank(Store& store, const std::string& key, int rank, const std::string& subject,
                          Duration timeout);

// Returns the ranks of a group of `size` that have put nothing under `key_of(rank)` yet.
std::vector<int> ranks_without_value(Store& store, int size, const std::function<std::string(int)>& key_of);

}  // namespace rondo
