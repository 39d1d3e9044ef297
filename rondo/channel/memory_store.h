#pragma once

#include <condition_variable>
#include <map>
#include <mutex>

#include "rondo/channel/store.h"

namespace rondo {

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

}  // namespace rondo
