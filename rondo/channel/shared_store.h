#pragma once

#include <functional>
#include <memory>

#include "rondo/channel/store.h"

namespace rondo {

// A store in an anonymous shared-memory file (memfd), for the processes of one host. A parent creates it and
// its children inherit the descriptor, so there is no port to open, no file to clean up and no name to guess.
// The kernel frees it with the last process, even if that is killed. A process that is killed within a call
// leaves the state before the call or after it.
class SharedStore final : public Store {
 public:
  // Creates a store of at most `capacity_bytes` of keys and values (log-structured: replaced values count
  // too).
  static std::unique_ptr<SharedStore> create(std::size_t capacity_bytes = 16U << 20);
  // Opens the store behind an inherited descriptor; throws Error if it is not one. The descriptor stays open
  // and belongs to the caller.
  static std::unique_ptr<SharedStore> open(int descriptor);
  ~SharedStore() override;

  // Returns the descriptor for children. The descriptor is close-on-exec; the launcher clears that flag in
  // the child.
  int descriptor() const;

  void set(std::string_view key, std::string_view value) override;
  std::string get(std::string_view key, const Wait& wait) override;
  std::optional<std::string> try_get(std::string_view key) override;
  long long add(std::string_view key, long long delta) override;
  std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired) override;
  bool remove(std::string_view key) override;
  long long size() override;

  // Sets a callback for tests of kills: called at every point of a change at which a kill would leave
  // different contents.
  void at_every_point(std::function<void()> call);

 private:
  struct Impl;
  explicit SharedStore(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Environment variable in which the launcher passes its workers the descriptor number of the job's
// SharedStore.
inline constexpr const char* kStoreDescriptorVariable = "RONDO_STORE_FD";

}  // namespace rondo
