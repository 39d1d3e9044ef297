#pragma once

#include <memory>
#include <type_traits>
#include <vector>

#include "rondo/base/error.h"
#include "rondo/collective/shared_memory/engine.h"

namespace rondo::hierarchical {

// Collectives among the ranks of one host. Roots and pieces are numbered by local rank; the ranks that errors
// carry are the whole group's.
//
// Buffers have no owner that outlives a failure, and need none: no peer writes to another rank's memory here.
// Only all_reduce does, when it works in place, and that is refused.
class HostGroup {
 public:
  // Waits take up to `patience` longer than their deadline.
  HostGroup(std::shared_ptr<shared_memory::Engine> engine, std::vector<int> members, Duration patience)
      : engine_(std::move(engine)), members_(std::move(members)), patience_(patience) {}

  std::uint64_t start(CollectiveRequest request) {
    if (request.kind == OperationKind::all_reduce)
      throw UsageError(
          "an all_reduce within a host may write to a peer's buffer after that peer has given up");
    return translated([&] { return engine_->start(std::move(request)); });
  }
  // Until a collective, and so all before it, has completed.
  void wait(std::uint64_t sequence, const Deadline& deadline) {
    translated([&] { engine_->wait(sequence, {deadline.later_by(patience_), nullptr}); });
  }
  void run(CollectiveRequest request, const Deadline& deadline) { wait(start(std::move(request)), deadline); }
  void abort(const std::string& reason) { engine_->abort(reason); }

 private:
  template <class Function>
  std::invoke_result_t<Function> translated(Function function) {
    try {
      return function();
    } catch (const PeerLostError& e) {
      throw PeerLostError(e.what(), in_group(e.ranks()));
    } catch (const TimeoutError& e) {
      throw TimeoutError(e.what(), in_group(e.ranks()));
    } catch (const MismatchError& e) {
      throw MismatchError(e.what(), in_group(e.ranks()));
    } catch (const CommunicationError& e) {
      throw CommunicationError(e.what(), in_group(e.ranks()));
    }
  }
  std::vector<int> in_group(const std::vector<int>& local_ranks) const {
    std::vector<int> ranks;
    for (const int local : local_ranks) ranks.push_back(members_[static_cast<std::size_t>(local)]);
    return ranks;
  }

  std::shared_ptr<shared_memory::Engine> engine_;
  std::vector<int> members_;
  Duration patience_;
};

}  // namespace rondo::hierarchical
