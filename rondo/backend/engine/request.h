#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "rondo/backend/engine/job_objects.h"
#include "rondo/backend/engine/traits.h"
#include "rondo/base/time.h"

namespace rondo {

// One group's connection over an engine, and its traits.
struct Communicator {
  c10::intrusive_ptr<c10d::Backend> backend;  // never null
  EngineTraits traits;                        // traits of this communicator
};

// The input of a backend factory, which makes one communicator.
struct BackendRequest {
  std::string group_name;                 // the same on all members, unique in the job
  int rank = 0;                           // rank of this process in the group
  int size = 1;                           // number of members of the group
  std::vector<int> world_ranks;           // world rank of each member
  c10::intrusive_ptr<c10d::Store> store;  // private to the group
  // Store of all ranks of the job, for its first failure; null: only the group's own failures are recorded.
  c10::intrusive_ptr<c10d::Store> job_store = {};
  // Objects that this rank's groups of the job share; null: the group is not part of a job.
  std::shared_ptr<JobObjects> job_objects = {};
  Duration timeout = std::chrono::minutes(5);  // longest wait of any collective
  // Host of each member, equal for those that can share memory; empty: all run on one host.
  std::vector<std::string> hosts = {};
  std::vector<std::string> host_names = {};  // name of each member's host, for messages
  // Store that only this host's members share, private to the group; null: they use `store`.
  c10::intrusive_ptr<c10d::Store> host_store = {};
  // Address at which other hosts reach this host; empty: unknown.
  std::string local_address = {};
  // Arguments in the brackets after the name of an engine from a shared module, "m.so:x(a, b)".
  std::vector<std::string> arguments = {};
  // Whether sums are added in the order of ranks, see InitOptions::deterministic. The registry ensures it for
  // engines whose factory is not registered as deterministic.
  bool deterministic = false;
  // Makes component engines by name, for an engine that combines others; set by the registry.
  std::function<Communicator(const std::string& name, const BackendRequest&)> make = {};

  // Returns whether all members can share memory.
  bool one_host() const {
    return hosts.empty() ||
           std::all_of(hosts.begin(), hosts.end(), [&](const auto& h) { return h == hosts.front(); });
  }
};

// Returns the request of this rank for a group of `ranks`, which are members of the parent's group, in the
// order of the new group; nullopt if this rank is not among them. `options` has the group's name and timeout.
// Throws UsageError for a rank that the parent does not have.
std::optional<BackendRequest> request_of_part(const BackendRequest& parent, const std::vector<int>& ranks,
                                              const c10::intrusive_ptr<c10d::Store>& store,
                                              const c10d::Backend::Options& options);

// A factory of this rank's end of a communicator. Collective: every member calls it with the same group.
// Blocking.
using BackendFactory = std::function<c10::intrusive_ptr<c10d::Backend>(const BackendRequest&)>;

// A registered engine: its factory, and the traits of communicators that are not ExtendedBackend.
struct RegisteredBackend {
  BackendFactory factory;    // makes a communicator
  EngineTraits traits = {};  // of communicators that are not ExtendedBackend
  bool built_in = false;     // an engine of rondo, whose traits are known without a communicator
};

}  // namespace rondo
