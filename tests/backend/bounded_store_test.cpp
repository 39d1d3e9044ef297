#include "rondo/backend/engine/store_adapter.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "rondo/backend/engine/failure_record.h"
#include "rondo/base/error.h"
#include "rondo/launch/end_notice.h"
#include "tests/errors.h"

namespace rondo::bounded_store_test {
namespace {

using testing::expect_facts;
using testing::message_of;

// A store whose keeper is stopped: no call returns before go_on(), as in TCPStore.
class StoppedStore final : public c10d::Store {
 public:
  c10::intrusive_ptr<c10d::Store> clone() override { return store_.clone(); }
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override {
    until_it_goes_on();
    store_.set(key, value);
  }
  std::vector<std::uint8_t> compareSet(const std::string& key, const std::vector<std::uint8_t>& expected,
                                       const std::vector<std::uint8_t>& desired) override {
    until_it_goes_on();
    return store_.compareSet(key, expected, desired);
  }
  std::vector<std::uint8_t> get(const std::string& key) override {
    until_it_goes_on();
    return store_.get(key);
  }
  std::int64_t add(const std::string& key, std::int64_t value) override {
    until_it_goes_on();
    return store_.add(key, value);
  }
  bool deleteKey(const std::string& key) override {
    until_it_goes_on();
    return store_.deleteKey(key);
  }
  bool check(const std::vector<std::string>& keys) override {
    until_it_goes_on();
    return store_.check(keys);
  }
  std::int64_t getNumKeys() override {
    until_it_goes_on();
    return store_.getNumKeys();
  }
  void wait(const std::vector<std::string>& keys) override { wait(keys, getTimeout()); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override {
    until_it_goes_on();
    store_.wait(keys, timeout);
  }

  void go_on() {
    const std::lock_guard lock(mutex_);
    stopped_ = false;
    changed_.notify_all();
  }

 private:
  void until_it_goes_on() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !stopped_; });
  }

  c10d::HashStore store_;
  std::mutex mutex_;  // protects stopped_
  std::condition_variable changed_;
  bool stopped_ = true;
};

constexpr auto kTimeout = std::chrono::milliseconds(100);

BoundedStore::Options with_timeout(Duration timeout) {
  return {.keeper = "rank 0 at a:1", .timeout = timeout};
}

TEST(BoundedStore, EveryCallEndsInTime) {
  const std::vector<std::uint8_t> value{1};
  const std::vector<std::function<void(c10d::Store&)>> calls = {
      [&](c10d::Store& store) { store.set("a", value); },
      [&](c10d::Store& store) { store.get("a"); },
      [&](c10d::Store& store) { store.compareSet("a", {}, value); },
      [&](c10d::Store& store) { store.add("n", 1); },
      [&](c10d::Store& store) { store.deleteKey("a"); },
      [&](c10d::Store& store) { store.check({"a"}); },
      [&](c10d::Store& store) { store.getNumKeys(); },
      [&](c10d::Store& store) { store.wait({"a"}); },
      [&](c10d::Store& store) { store.wait({"a"}, kTimeout); }};
  for (const auto& call : calls) {
    const auto stopped = c10::make_intrusive<StoppedStore>();
    BoundedStore store(stopped, with_timeout(kTimeout));
    expect_facts(message_of<TimeoutError>([&] { call(store); }), {"rank 0 at a:1", "stopped"});
    // The store has failed: later calls do not wait.
    const TimePoint begin = Clock::now();
    EXPECT_THROW(store.check({"b"}), TimeoutError);
    EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5));
    stopped->go_on();
  }
}

TEST(BoundedStore, AnswersAsTheStoreDoes) {
  BoundedStore store(c10::make_intrusive<c10d::HashStore>(), with_timeout(std::chrono::minutes(1)));
  store.set("a", std::vector<std::uint8_t>{7});
  EXPECT_EQ(store.get("a"), std::vector<std::uint8_t>{7});
  EXPECT_EQ(store.add("n", 3), 3);
  EXPECT_TRUE(store.check({"a"}));
  EXPECT_FALSE(store.check({"b"}));
  EXPECT_TRUE(store.deleteKey("a"));
  expect_facts(message_of<TimeoutError>([&] { store.wait({"b"}, std::chrono::milliseconds(600)); }), {"b"});
  std::thread other([&] { store.set("b", std::vector<std::uint8_t>{1}); });
  store.wait({"b"});  // while another thread's call runs
  other.join();
}

TEST(BoundedStore, WaitEndsWhenTheOverKeyIsSet) {
  const auto inner = c10::make_intrusive<c10d::HashStore>();
  BoundedStore store(inner, {.keeper = "rank 0",
                             .timeout = std::chrono::minutes(2),
                             .over_key = "over",
                             .over_text = "attempt 0 is over: "});
  static_cast<c10d::Store&>(*inner).set("over", "host b\x1b[2J restarts");
  const std::string message = message_of<JobOverError>([&] { store.get("a"); });
  expect_facts(message, {"attempt 0 is over", "host b", "restarts"});
  EXPECT_EQ(message.find('\x1b'), std::string::npos);
}

// Makes libtorch's own store, at a free port.
c10::intrusive_ptr<c10d::TCPStore> listening_store(bool use_libuv) {
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  options.useLibUV = use_libuv;
  return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
}

// The launcher writes the messages of libtorch's protocol itself.
TEST(BoundedStore, ALaunchersNoticeEndsAWait) {
  for (const bool use_libuv : {true, false}) {
    const auto inner = listening_store(use_libuv);
    BoundedStore store(inner, {.keeper = "rank 0",
                               .timeout = std::chrono::minutes(2),
                               .over_key = launch::end_key(3),
                               .over_text = "attempt 3 is over: "});
    std::thread waiting([&] {
      expect_facts(message_of<JobOverError>([&] { store.get("a"); }),
                   {"attempt 3 is over", "rank 2 on host b was killed"});
    });
    EXPECT_TRUE(launch::notify_store("127.0.0.1", inner->getPort(), launch::end_key(3),
                                     "rank 2 on host b was killed",
                                     {Deadline::after(std::chrono::minutes(1)), {}}));
    waiting.join();
  }
}

// A rank asks before it connects to the store.
TEST(BoundedStore, IsNoLaunchersNotice) {
  for (const bool use_libuv : {true, false}) {
    const auto store = listening_store(use_libuv);
    EXPECT_EQ(launch::read_notice("127.0.0.1", store->getPort()), std::nullopt);
    store->set("a", std::vector<std::uint8_t>{1});
    EXPECT_EQ(store->get("a"), std::vector<std::uint8_t>{1});
  }
}

TEST(FailureRecord, DoesNotWaitForSilentStore) {
  const auto stopped = c10::make_intrusive<StoppedStore>();
  FailureRecord record(stopped, stopped, {}, kTimeout);
  const auto error = std::make_exception_ptr(PeerLostError("rank 3 is gone", {3}));
  EXPECT_EQ(record.first(error), error);
  stopped->go_on();
}

TEST(EngineReason, IsOneLineOfAscii) {
  EXPECT_EQ(engine_reason(std::runtime_error("[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] "
                                             "Connection closed by peer [10.0.0.1]:29\nframe #0: x")),
            "Connection closed by peer [10.0.0.1]:29");
  EXPECT_EQ(engine_reason(std::runtime_error("GLHF! \xf0\x9f\x8f\x96\xef\xb8\x8f")),
            "the connection was closed");
  EXPECT_EQ(engine_reason(std::runtime_error("b\xc3\xa4h")), "bh");
}

}  // namespace
}  // namespace rondo::bounded_store_test
