#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/channel/shared_store.h"
#include "rondo/channel/store.h"

namespace rondo::store_test {
namespace {

std::unique_ptr<Store> make_store(const std::string& kind) {
  if (kind == "memory") return std::make_unique<MemoryStore>();
  return SharedStore::create();
}

Wait within(Duration duration) { return {Deadline::after(duration), nullptr}; }

class StoreTest : public ::testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<Store> store_ = make_store(GetParam());
};

TEST_P(StoreTest, KeepsBytes) {
  const std::string value("a\0b", 3);
  store_->set("key", value);
  EXPECT_EQ(store_->get("key", within(std::chrono::seconds(60))), value);
  store_->set("key", std::string(1000, 'x'));
  EXPECT_EQ(store_->try_get("key"), std::string(1000, 'x'));
  EXPECT_EQ(store_->size(), 1);
  EXPECT_EQ(store_->try_get("other"), std::nullopt);
  EXPECT_TRUE(store_->remove("key"));
  EXPECT_FALSE(store_->remove("key"));
  EXPECT_EQ(store_->size(), 0);
}

TEST_P(StoreTest, WaitsForAKey) {
  std::thread setter([this] { store_->set("late", "here"); });
  EXPECT_EQ(store_->get("late", within(std::chrono::seconds(60))), "here");
  setter.join();
}

TEST_P(StoreTest, GivesUpAtTheDeadlineNamingTheKey) {
  try {
    store_->get("never", within(std::chrono::milliseconds(5)));
    FAIL();
  } catch (const TimeoutError& e) {
    EXPECT_NE(std::string(e.what()).find("never"), std::string::npos);
  }
}

TEST_P(StoreTest, CanBeCancelled) {
  const CancelToken token;
  token.cancel();
  EXPECT_THROW(store_->get("never", {Deadline::never(), &token}), CancelledError);
}

TEST_P(StoreTest, AddsAtomicallyFromThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this] {
      for (int i = 0; i < 100; ++i) store_->add("count", 1);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(store_->add("count", 0), 400);
}

TEST_P(StoreTest, ComparesAndSets) {
  EXPECT_EQ(store_->compare_set("key", "", "first"), "first");
  EXPECT_EQ(store_->compare_set("key", "other", "second"), "first");
  EXPECT_EQ(store_->compare_set("key", "first", "second"), "second");
}

INSTANTIATE_TEST_SUITE_P(Kinds, StoreTest, ::testing::Values("memory", "shared"));

TEST(SharedStore, ChildrenSeeTheParentsStore) {
  const auto store = SharedStore::create();
  const pid_t child = fork();
  if (child == 0) {
    const auto opened = SharedStore::open(store->descriptor());
    opened->set("from child", std::to_string(opened->add("count", 5)));
    _exit(0);
  }
  EXPECT_EQ(store->get("from child", within(std::chrono::seconds(60))), "5");
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(SharedStore, SurvivesAProcessKilledWhileWriting) {
  const auto store = SharedStore::create();
  for (int round = 0; round < 20; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      while (true) store->add("count", 1);
    }
    while (store->add("round", 0) == round && store->add("count", 0) < (round + 1) * 50) {
    }
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    store->add("round", 1);
  }
  EXPECT_EQ(store->add("round", 0), 20);
}

using Value = std::optional<std::string>;

// Changes `key` from one value to the next in a child that is killed at point number `at`. Returns false if
// the change has fewer points.
bool change_and_be_killed(SharedStore& store, const Value& next, int at) {
  const pid_t child = fork();
  if (child == 0) {
    int points = 0;
    store.at_every_point([&] {
      if (points++ == at) raise(SIGKILL);
    });
    if (next) store.set("key", *next);
    if (!next) store.remove("key");
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status);
}

TEST(SharedStore, KillLeavesOldOrNewValue) {
  const std::string some(100, 'x'), others(100, 'y'), more(200, 'z');
  const std::vector<std::pair<Value, Value>> changes = {
      {"9", "10"},     {"1999", "2000"},        {"100", "99"},
      {"short", some}, {some, "few"},           {some, others},
      {some, more},    {std::nullopt, "first"}, {some, some},
      {"here", ""},    {"there", std::nullopt}, {std::nullopt, more}};
  for (const auto& [before, after] : changes) {
    bool killed = true;
    int at = 0;
    for (; killed; ++at) {
      SCOPED_TRACE(str(before.value_or("nothing"), " to ", after.value_or("nothing"), " at point ", at));
      const auto store = SharedStore::create(4096);
      store->set("other", "kept");
      if (before) store->set("key", *before);
      killed = change_and_be_killed(*store, after, at);
      const Value left = store->try_get("key");
      EXPECT_TRUE(left == after || (killed && left == before)) << left.value_or("nothing");
      EXPECT_EQ(store->size(), left ? 2 : 1);
      // No remains of the killed change reappear.
      for (const Value& next : {Value(others), Value("7"), Value(more)}) {
        store->set("key", *next);
        EXPECT_EQ(store->try_get("key"), next);
        EXPECT_EQ(store->size(), 2);
      }
      EXPECT_TRUE(store->remove("key"));
      EXPECT_EQ(store->try_get("key"), std::nullopt);
      EXPECT_EQ(store->size(), 1);
      EXPECT_EQ(store->try_get("other"), "kept");
    }
    EXPECT_GT(at, 2);
  }
}

TEST_P(StoreTest, NamesRanksThatHaveAnnouncedNothing) {
  const auto key_of = [](int rank) { return str("value/", rank); };
  store_->set("value/1", "here");
  EXPECT_EQ(ranks_without_value(*store_, 3, key_of), (std::vector<int>{0, 2}));
  const Duration timeout = std::chrono::milliseconds(20);
  EXPECT_EQ(value_of_rank(*store_, "value/1", 1, "a value", timeout), "here");
  try {
    value_of_rank(*store_, "value/2", 2, "its colour", timeout);
    ADD_FAILURE() << "rank 2 has announced nothing";
  } catch (const TimeoutError& error) {
    EXPECT_EQ(error.ranks(), std::vector<int>{2});
    EXPECT_NE(std::string(error.what()).find("rank 2 to announce its colour"), std::string::npos)
        << error.what();
  }
}

// Also values that are longer than any counter, from the second time on.
TEST(SharedStore, RewritesValuesInTheirPlace) {
  const auto store = SharedStore::create(4096);
  for (int i = 0; i < 1000; ++i) {
    const std::string value(static_cast<std::size_t>(100 + i % 3), static_cast<char>('a' + i % 26));
    store->set("long", value);
    ASSERT_EQ(store->try_get("long"), value);
  }
}

TEST(SharedStore, SaysWhenItIsFull) {
  const auto store = SharedStore::create(4096);
  EXPECT_THROW(store->set("big", std::string(8192, 'x')), Error);
  for (int i = 0; i < 10000; ++i) store->add("counter", 1);  // rewritten in place: never fills
  EXPECT_EQ(store->add("counter", 0), 10000);
}

TEST(SharedStore, RefusesWhatIsNotAStore) { EXPECT_THROW(SharedStore::open(9999), Error); }

}  // namespace
}  // namespace rondo::store_test
