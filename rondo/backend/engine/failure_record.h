#pragma once

#include <exception>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "rondo/base/error.h"
#include "rondo/base/time.h"

namespace rondo {

// The first failure of a group and the first of its job, written where all ranks can read them before anybody
// acts on them: a rank that sees a connection close, or a rank leave, asks here whether that is the cause or
// a consequence of what happened in another group. Any thread. Never throws, and waits for the store some
// seconds at most: the store may be what failed. A copy is the same record.
class FailureRecord {
 public:
  // `group` and `job` are stores that all ranks of the group, and of the job, share; either may be null.
  // `world_ranks` are those of the group's members; empty: the same as in the group. `limit` is the longest
  // wait for a store.
  FailureRecord(const c10::intrusive_ptr<c10d::Store>& group, const c10::intrusive_ptr<c10d::Store>& job,
                std::vector<int> world_ranks, Duration limit = std::chrono::seconds(5));

  // Returns the exception to report in place of `error`: another rank's failure if one came before, else
  // `error`. It names another group where the failure is that group's. An error that is no
  // CommunicationError is no failure of the job.
  std::exception_ptr first(const std::exception_ptr& error) noexcept;

 private:
  struct Failure {
    std::vector<int> ranks;  // to blame
    bool mismatch = false;   // ranks disagree, nobody is lost
    std::string what;
  };
  static Failure record(c10d::Store& store, const Failure& failure);
  std::exception_ptr first_of_job(const std::exception_ptr& error,
                                  const CommunicationError& failure) noexcept;

  c10::intrusive_ptr<c10d::Store> group_;
  c10::intrusive_ptr<c10d::Store> job_;
  std::vector<int> world_ranks_;
};

}  // namespace rondo
