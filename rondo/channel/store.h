#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "rondo/base/cancel.h"

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

}  // namespace rondo
