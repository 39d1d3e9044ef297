#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <memory>

#include "rondo/channel/store.h"

namespace rondo {

// A rondo::Store seen as a c10d::Store: every engine of libtorch can meet through the launcher's shared
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

// A c10d::Store seen as a rondo::Store, for the torch-free engine. Cancelling a wait has no effect until its
// deadline.
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

}  // namespace rondo
