#pragma once

#include <exception>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace rondo::hierarchical {

// The first failure of a group, written where all ranks can read it before anybody acts on it: a rank that
// sees a connection close asks here whether that is the cause or a consequence. Any thread. Never throws: the
// store may be what failed.
class FailureRecord {
 public:
  explicit FailureRecord(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

  struct Failure {
    std::vector<int> ranks;  // to blame
    bool mismatch = false;   // ranks disagree, nobody is lost
    std::string what;
  };
  // Writes `failure` unless there is one already; returns the one that counts.
  Failure record(const Failure& failure) noexcept;
  // The same for an exception: what to report in its place, which is itself unless another rank's came
  // before.
  std::exception_ptr first(const std::exception_ptr& error) noexcept;

 private:
  c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace rondo::hierarchical
