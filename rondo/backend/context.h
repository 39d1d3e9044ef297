#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/base/time.h"
#include "rondo/env/mesh.h"

namespace rondo {

// What rondo::init may be told; every field is optional. A field left empty is read from the environment, see
// rondo/env; with no launcher at all the result is a world of one process.
struct InitOptions {
  // "auto" (nccl where every rank has a GPU of its own by `device`, else native on one host and
  // hierarchical(native, gloo) across hosts), "native", "gloo", "mpi", "nccl", "hierarchical(native, X)", a
  // name registered by register_backend, or "path/to/module.so:name" (module.h).
  std::string backend = "auto";
  // Device of this rank: "cpu", "cuda" (that of the local rank, counted again from the first where a host has
  // more ranks than GPUs), "cuda:N" (on a host with one rank), or "auto" (cuda where libtorch sees a GPU).
  std::string device = "cpu";
  // "env://", "file:///path/shared/by/all/ranks", "tcp://host:port". Whatever the environment says: "alone"
  // is a world of this process only, "apart:tcp://host:port" one of the rank and world_size given here.
  std::string init_method = "env://";
  std::optional<int> rank{};        // of this process, from 0
  std::optional<int> world_size{};  // processes of the job
  std::optional<int> local_rank{};  // among the processes of this host
  // An own store instead of init_method; rank and world_size must then be set.
  c10::intrusive_ptr<c10d::Store> store{};
  // Ranks with the same text share memory. Empty: RONDO_HOST, else found out (see
  // rendezvous.h).
  std::string host{};
  // Sums of floating-point numbers are added in the order of ranks 0, 1, 2, ... by every engine, on every
  // layout of hosts and with every algorithm: the same numbers give the same bits everywhere. What it costs:
  // docs/algorithms.md. Rank 0's wish counts. Empty: RONDO_DETERMINISTIC, else false.
  std::optional<bool> deterministic{};
  // How often the membership of the job has changed before: the same on all ranks. One store serves all
  // epochs.
  std::int64_t epoch = 0;
  // Longest wait of any collective and, unless RONDO_JOIN_TIMEOUT says otherwise, of the rendezvous.
  Duration timeout = std::chrono::minutes(5);
};

// A rank's place in a job and the engine that connects it to the others. A value-type handle; the last
// copy to go shuts down. A process may have several, of one job (ranks as threads) or of different ones; they
// share nothing but the process: memory is counted and log lines are marked by the context that a thread
// works for (enter()). libtorch's default generator of random numbers is the process's, too.
class Context {
 public:
  Context() = default;
  int rank() const;              // of this process in the world
  int world_size() const;        // processes of the job
  int local_rank() const;        // among the processes of this host
  int local_world_size() const;  // processes of the job on this host
  // Host name of this process.
  const std::string& host() const;
  // "native", "gloo", ...
  const std::string& backend_name() const;
  // Device of this rank: what InitOptions::device meant here.
  c10::Device device() const;
  // Devices for `count` replicas of this rank, whose own device is `first`: device(), or the one that the
  // program has chosen. On a host with several ranks that have the devices of their local ranks, local rank r
  // gets those from r * count on; else they begin with `first`. All on the CPU are there. Throws UsageError
  // naming both counts where the ranks of the host have more replicas than it has devices.
  std::vector<c10::Device> devices(c10::Device first, int count) const;
  // Whether sums are added in the order of ranks, see InitOptions.
  bool deterministic() const;
  // What this process is for in its job: "chief" or "worker" where TF_CONFIG says so, torchrun's --role, else
  // "default".
  const std::string& role() const;
  // Longest wait of any collective: InitOptions::timeout.
  Duration timeout() const;
  // How often the membership of the job has changed: 0 at the start. Not changed by within().
  std::int64_t epoch() const;
  // How the ranks share the work: {"data", all of them} unless mesh(dimensions) has said otherwise.
  const Mesh& mesh() const;
  // The same ranks as a grid of these dimensions (ordered_mesh), with a group for each. The result is what is
  // shut down. Collective. Throws UsageError as ordered_mesh does.
  Context mesh(const Mesh& dimensions) const;
  // The ranks that differ from this one in that dimension of the mesh only, this one included. Throws
  // UsageError naming the dimensions when there is no such one.
  const Group& group(const std::string& dimension) const;
  // The ranks that differ from this one in these dimensions of the mesh only: a new group. Those that the
  // mesh lacks have one rank. Collective.
  Group new_group_along(const std::vector<std::string>& dimensions) const;
  // All ranks.
  const Group& world() const;
  // From here on the calling thread works for this context: memory that it takes counts for this rank
  // (rondo/memory), its log lines have this rank's mark, and so have threads that rondo starts from it; the
  // thread's current device becomes device().
  // init() does it; other threads of a program with several contexts call it themselves. Any thread.
  void enter() const;
  // A sub-group. Collective: every rank of the world calls it with the same list (distinct world ranks, in
  // group order); those not in it get a handle whose member() is false. Throws UsageError for a bad list.
  Group new_group(const std::vector<int>& ranks) const;
  // This rank's place among the members of `group` (of this context) alone, for what is to run on some of the
  // ranks, a strategy for example: world() are the members, numbered as in the group, and new_group() is
  // collective among them only. They share the group's engine, and local_rank() stays. Collective: every
  // member calls it. Throws UsageError for a rank that is not a member.
  Context within(const Group& group) const;
  // Waits for all ranks, then shuts the engines of all groups down; later use of the native groups of this
  // context is an error. Called once at the end of a healthy run; not calling it is fine.
  void shutdown();

 private:
  friend Context init(const InitOptions&);
  struct State;
  explicit Context(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

// Joins the job. Blocking until all ranks have arrived or the timeout. Throws UsageError for contradictory or
// missing settings (it names the variables), for a device that libtorch does not see, for nccl where ranks
// share a GPU, for a role that no strategy serves (ps and evaluator of TF_CONFIG) and for a second call in
// one epoch of a job, TimeoutError naming the ranks that did not arrive. Warns where ranks share a GPU.
Context init(const InitOptions& options = {});

}  // namespace rondo
