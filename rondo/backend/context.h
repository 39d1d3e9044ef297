#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/base/time.h"

namespace rondo {

// What rondo::init may be told; every field is optional. A field left empty is read from the environment, see
// rondo/env; with no launcher at all the result is a world of one process.
struct InitOptions {
  // "auto" (native on one host, hierarchical(native, gloo) across hosts), "native", "gloo", "mpi", "nccl",
  // "hierarchical(native, X)", a name registered by register_backend, or "path/to/module.so:name" (module.h).
  std::string backend = "auto";
  // "env://", "file:///path/shared/by/all/ranks" or "tcp://host:port".
  std::string init_method = "env://";
  std::optional<int> rank{};
  std::optional<int> world_size{};
  std::optional<int> local_rank{};
  // An own store instead of init_method; rank and world_size must then be set.
  c10::intrusive_ptr<c10d::Store> store{};
  // Ranks with the same text share memory. Empty: RONDO_HOST, else found out (see
  // membership.h).
  std::string host{};
  // Sums of floating-point numbers are added in the order of ranks 0, 1, 2, ... by every engine, on every
  // layout of hosts and with every algorithm: the same numbers give the same bits everywhere. What it costs:
  // docs/algorithms.md. Rank 0's wish counts. Empty: RONDO_REPRODUCIBLE, else false.
  std::optional<bool> reproducible{};
  // Longest wait of any collective and, unless RONDO_JOIN_TIMEOUT says otherwise, of the rendezvous.
  Duration timeout = std::chrono::minutes(5);
};

// This process's place in a job and the engine that connects it to the others. A value-type handle; the last
// copy to go shuts down.
class Context {
 public:
  Context() = default;
  int rank() const;
  int world_size() const;
  int local_rank() const;
  int local_world_size() const;
  // Host name of this process.
  const std::string& host() const;
  // "native", "gloo", ...
  const std::string& backend_name() const;
  // Whether sums are added in the order of ranks, see InitOptions.
  bool reproducible() const;
  // All ranks.
  const Group& world() const;
  // A sub-group. Collective: every rank of the world calls it with the same list (distinct world ranks, in
  // group order); those not in it get a handle whose member() is false. Throws UsageError for a bad list.
  Group new_group(const std::vector<int>& ranks) const;
  // Waits for all ranks; later use of the native groups of this context is an error. Called once at the end
  // of a healthy run; not calling it is fine.
  void shutdown();

 private:
  friend Context init(const InitOptions&);
  struct State;
  explicit Context(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

// Joins the job. Blocking until all ranks have arrived or the timeout. Throws UsageError for contradictory or
// missing settings (it names the variables), TimeoutError naming the ranks that did not arrive.
Context init(const InitOptions& options = {});

}  // namespace rondo
