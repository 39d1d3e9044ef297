#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "rondo/base/error.h"
#include "rondo/base/time.h"
#include "rondo/channel/store.h"

namespace rondo {

// A rondo::Store as a c10d::Store, so that every engine of libtorch can meet through the launcher's shared
// memory.
class StoreForC10d final : public c10d::Store {
 public:
  explicit StoreForC10d(std::shared_ptr<rondo::Store> store) : store_(std::move(store)) {}
  using c10d::Store::compareSet;
  using c10d::Store::set;

  c10::intrusive_ptr<c10d::Store> clone() override;
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override;
  std::vector<std::uint8_t> compareSet(const std::string& key, const std::vector<std::uint8_t>& expected,
                                       const std::vector<std::uint8_t>& desired) override;
  std::vector<std::uint8_t> get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  std::int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;

 private:
  std::shared_ptr<rondo::Store> store_;
};

// A c10d::Store as a rondo::Store, for the engine that does not use libtorch. Cancelling a wait has no effect
// until its deadline.
class StoreFromC10d final : public Store {
 public:
  explicit StoreFromC10d(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}
  void set(std::string_view key, std::string_view value) override;
  std::string get(std::string_view key, const Wait& wait) override;
  std::optional<std::string> try_get(std::string_view key) override;
  long long add(std::string_view key, long long delta) override;
  std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired) override;
  bool remove(std::string_view key) override;
  long long size() override;

 private:
  c10::intrusive_ptr<c10d::Store> store_;
};

// Runs `call` on a new thread and blocks until it has ended. Throws the call's exception; libtorch's errors
// become PeerLostError (the connection is lost) or Error. Throws TimeoutError if the call has not ended after
// `limit`; the call is then abandoned and must own the values that it uses. `keeper` names the process that
// answers, for messages. Calls `each_second` about once a second meanwhile, unless it is empty. Suppresses
// libtorch's own log lines of failures.
void run_bounded(std::function<void()> call, Duration limit, const std::string& keeper,
                 const std::function<void()>& each_second = {});

// The error for a job, or its current attempt, that ended before all ranks joined; the message has the
// reason.
class JobOverError : public PeerLostError {
 public:
  using PeerLostError::PeerLostError;
};

// A c10d::Store that another process keeps, with bounded calls: c10d itself waits without limit for a process
// that is stopped or cut off, and blocks every other call meanwhile. A call throws TimeoutError if it is not
// answered within getTimeout(), a wait() five seconds after its own timeout; later calls then throw at once.
// Throws PeerLostError if the connection is lost, and JobOverError if over_key is set during a wait. Any
// thread.
class BoundedStore final : public c10d::Store {
 public:
  struct Options {
    std::string keeper;  // name of the process that keeps the store, for messages
    Duration timeout;    // limit of each call
    // Key that ends waits with JobOverError, whose message is over_text and the key's value. Empty: none.
    std::string over_key = {};
    std::string over_text = {};
  };
  BoundedStore(c10::intrusive_ptr<c10d::Store> store, Options options);

  using c10d::Store::compareSet;
  using c10d::Store::set;
  c10::intrusive_ptr<c10d::Store> clone() override;
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override;
  std::vector<std::uint8_t> compareSet(const std::string& key, const std::vector<std::uint8_t>& expected,
                                       const std::vector<std::uint8_t>& desired) override;
  std::vector<std::uint8_t> get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  std::int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;
  void append(const std::string& key, const std::vector<std::uint8_t>& value) override;
  std::vector<std::vector<std::uint8_t>> multiGet(const std::vector<std::string>& keys) override;
  void multiSet(const std::vector<std::string>& keys,
                const std::vector<std::vector<std::uint8_t>>& values) override;
  bool hasExtendedApi() const override;

 private:
  template <class Result>
  Result ask(std::function<Result(c10d::Store&)> call, Duration limit) const;
  template <class Result>
  Result ask(std::function<Result(c10d::Store&)> call) const {
    return ask<Result>(std::move(call), getTimeout());
  }
  void throw_if_broken() const;
  [[noreturn]] void throw_broken() const;

  c10::intrusive_ptr<c10d::Store> store_;
  Options options_;
  mutable std::mutex mutex_;           // protects broken_
  mutable std::exception_ptr broken_;  // error of an unanswered call; later calls rethrow it
};

}  // namespace rondo
