#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "rondo/backend/engine/store_adapter.h"
#include "rondo/backend/native/native_backend.h"
#include "rondo/base/error.h"
#include "rondo/channel/store.h"
#include "tests/backend/ranks.h"
#include "tests/errors.h"

namespace rondo::native_rendezvous_test {
namespace {

// A rank's view of a store that calls `note` before each use.
class NotedStore final : public Store {
 public:
  using Note = std::function<void(std::string_view key)>;
  NotedStore(Store& store, Note note) : store_(store), note_(std::move(note)) {}

  void set(std::string_view key, std::string_view value) override { noted(key).set(key, value); }
  std::string get(std::string_view key, const Wait& wait) override { return noted(key).get(key, wait); }
  std::optional<std::string> try_get(std::string_view key) override { return noted(key).try_get(key); }
  long long add(std::string_view key, long long delta) override { return noted(key).add(key, delta); }
  std::string compare_set(std::string_view key, std::string_view expected,
                          std::string_view desired) override {
    return noted(key).compare_set(key, expected, desired);
  }
  bool remove(std::string_view key) override { return noted(key).remove(key); }
  long long size() override { return noted("").size(); }

 private:
  Store& noted(std::string_view key) {
    note_(key);
    return store_;
  }

  Store& store_;
  const Note note_;
};

// As if rank 0 kept the store, and ended after its last call.
TEST(NativeRendezvous, NeedsNoStoreAfterTheFirstRankJoined) {
  testing::set_up_mathematics();
  MemoryStore store;
  std::promise<void> through;
  const std::shared_future<void> first_is_through = through.get_future().share();
  std::atomic<int> late_uses{0};
  const auto note = [&](std::string_view key) {
    // The last key that a rank reads. Rank 0 has set it already, and would be finished by then.
    const auto patience = std::chrono::milliseconds(key.starts_with("algorithms/") ? 200 : 0);
    if (first_is_through.wait_for(patience) == std::future_status::ready) ++late_uses;
  };
  tests::run_rank_threads(2, [&](int rank) {
    at::set_num_threads(1);
    const auto view = rank == 0 ? std::make_shared<NotedStore>(store, [](std::string_view) {})
                                : std::make_shared<NotedStore>(store, note);
    BackendRequest request;
    request.group_name = "noted";
    request.rank = rank;
    request.size = 2;
    request.store = c10::make_intrusive<StoreForC10d>(view);
    const c10::intrusive_ptr<c10d::Backend> backend = c10::make_intrusive<NativeBackend>(request);
    if (rank == 0) through.set_value();
    std::vector<at::Tensor> tensors{at::ones({10})};
    backend->allreduce(tensors)->wait();
    EXPECT_TRUE(tensors.front().eq(2).all().item<bool>());
    backend->monitoredBarrier({}, true);
  });
  EXPECT_EQ(late_uses.load(), 0);
}

// A lost peer of a split group is a consequence of what the job's record has from another group.
TEST(NativeBackend, SplitGroupNamesFailedRank) {
  const c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::HashStore>();
  testing::run_ranks(2, "native", [&](Context& context) {
    const auto options = c10::make_intrusive<c10d::Backend::Options>("part");
    const auto part = context.world().backend()->split(c10::make_intrusive<c10d::PrefixStore>("part", store),
                                                       {1, 0}, options);
    const auto told = [](ExtendedBackend& engine, const auto& error) {
      return testing::message_of(
          [&] { std::rethrow_exception(engine.cause_of(std::make_exception_ptr(error))); });
    };
    if (context.rank() == 1) {
      told(*context.world().extended(), MismatchError("rank 1 has another tensor", {1}));
      store->set("recorded", "yes");
    } else {
      store->wait({"recorded"});
      testing::expect_facts(told(*extended(part), PeerLostError("a member left", {0})),
                            {"rank 1 has another tensor", "here as a consequence: a member left"});
      store->set("seen", "yes");
    }
    store->wait({"seen"});
  });
}

}  // namespace
}  // namespace rondo::native_rendezvous_test
