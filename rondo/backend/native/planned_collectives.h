#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "rondo/channel/store.h"
#include "rondo/collective/chooser/chooser.h"
#include "rondo/collective/executor.h"
#include "rondo/collective/shared_memory/engine.h"

namespace rondo {

// Runs those collectives of a group by a plan for which the chooser finds a plan faster than the engine, or
// the user named one (RONDO_ALGORITHM): all_reduce, reduce_scatter, all_gather, broadcast and reduce; the
// others are the engine's.
//
// Plans block, and their sums may be added in another order than the engine's (docs/algorithms.md), unless
// the group is deterministic. Any thread, one at a time; collectives in the same order on all ranks.
class PlannedCollectives {
 public:
  // Collective over the store: rank 0 says what it has measured (tuning_path()), what was set by hand and
  // whether sums are added in rank order, so that all ranks choose alike. In rank order only what was set by
  // hand counts: measurements are of other plans. Null when all choices are the engine. Throws UsageError for
  // a wrong RONDO_ALGORITHM, on all ranks.
  static std::unique_ptr<PlannedCollectives> make(Store& store, const shared_memory::GroupOptions& options,
                                                  bool in_rank_order);

  bool adds_in_rank_order() const { return in_rank_order_; }

  // Returns false, and does nothing, where the engine is to be used. Throws what Executor::run and
  // Engine::wait throw.
  bool run(const CollectiveRequest& request, shared_memory::Engine& engine, const Wait& wait);

 private:
  PlannedCollectives(Store& store, const shared_memory::GroupOptions& options, collective::Chooser chooser,
                     bool in_rank_order);
  collective::Executor& executor_for(const CollectiveRequest& request, const collective::Choice& choice);
  std::uint64_t buffer_bytes(const CollectiveRequest& request) const;
  std::span<std::byte> fill_buffer(const CollectiveRequest& request);
  void take_result(const CollectiveRequest& request, std::span<const std::byte> buffer) const;

  const collective::Chooser chooser_;
  const int rank_;
  const int size_;
  const bool in_rank_order_;
  std::mutex mutex_;  // protects everything below
  std::unique_ptr<Channel> channel_;
  // By operation, type, reduction, root, bytes and algorithm. A training job has few.
  using Key = std::tuple<OperationKind, DType, Reduction, int, std::uint64_t, std::string>;
  std::map<Key, std::unique_ptr<collective::Executor>> executors_;
  std::vector<std::byte> scratch_;  // where pieces do not lie as a plan wants them
};

}  // namespace rondo
