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

// Options of rondo::init, all of them optional. An empty field is read from the environment, see rondo/env;
// without a launcher the result is a world of one process.
struct InitOptions {
  // Name of the communication engine: "auto" (nccl if every rank has a GPU of its own by `device`, else
  // native on one host and hierarchical(native, gloo) across hosts), "native", "gloo", "mpi", "nccl",
  // "hierarchical(native, X)", a name registered by register_backend, or "path/to/module.so:name" (module.h).
  std::string backend = "auto";
  // Device of this rank: "cpu", "cuda" (the GPU with the index of the local rank, modulo the number of GPUs),
  // "cuda:N" (on a host with one rank), or "auto" (cuda if libtorch sees a GPU).
  std::string device = "cpu";
  // Rendezvous method: "env://", "file:///path/shared/by/all/ranks", "tcp://host:port". Two values ignore the
  // environment: "alone", a world of this process only, and "apart:tcp://host:port", a world of the `rank`
  // and `world_size` given here.
  std::string init_method = "env://";
  std::optional<int> rank{};        // rank of this process, from 0
  std::optional<int> world_size{};  // number of processes of the job
  std::optional<int> local_rank{};  // rank among the processes of this host
  // Store of the caller, used instead of init_method. Needs rank and world_size.
  c10::intrusive_ptr<c10d::Store> store{};
  // Name of this rank's host. Ranks with the same name share memory. Empty: RONDO_HOST, else detected (see
  // rendezvous.h).
  std::string host{};
  // Adds floating-point sums in the order of ranks 0, 1, 2, ... with every engine, layout of hosts and
  // algorithm, so that results are bitwise reproducible. docs/algorithms.md gives the cost. Rank 0's value
  // applies to all ranks. Empty: RONDO_DETERMINISTIC, else false.
  std::optional<bool> deterministic{};
  // Number of earlier changes of the job's membership, the same on all ranks. One store serves all epochs.
  std::int64_t epoch = 0;
  // Longest wait of any collective and, unless RONDO_JOIN_TIMEOUT is set, of the rendezvous.
  Duration timeout = std::chrono::minutes(5);
};

// A rank's place in a job and the engine that connects it to the others. A value-type handle; destroying the
// last copy shuts down. A process may have several contexts, of one job (ranks as threads) or of different
// jobs. Contexts share only the process: memory and log lines are attributed to the context that the thread
// has entered (enter()). libtorch's default random number generator is also shared by the process.
class Context {
 public:
  Context() = default;
  int rank() const;              // rank of this process in the world
  int world_size() const;        // number of processes of the job
  int local_rank() const;        // rank among the processes of this host
  int local_world_size() const;  // number of processes of the job on this host
  // Host name of this process.
  const std::string& host() const;
  // Name of the engine: "native", "gloo", ...
  const std::string& backend_name() const;
  // Device of this rank, resolved from InitOptions::device.
  c10::Device device() const;
  // Returns devices for `count` replicas of this rank, whose own device is `first`: device(), or a device
  // that the program has chosen. If several ranks of a host use the devices of their local ranks, local rank
  // r gets the devices from r * count on; otherwise the devices begin with `first`. If `first` is the CPU,
  // all are. Throws UsageError naming both counts if the ranks of the host have more replicas than it has
  // devices.
  std::vector<c10::Device> devices(c10::Device first, int count) const;
  // Whether sums are added in the order of ranks, see InitOptions::deterministic.
  bool deterministic() const;
  // Role of this process in its job: "chief" or "worker" if TF_CONFIG says so, torchrun's --role, else
  // "default".
  const std::string& role() const;
  // Longest wait of any collective: InitOptions::timeout.
  Duration timeout() const;
  // Number of changes of the job's membership: 0 at the start. within() does not change it.
  std::int64_t epoch() const;
  // Mesh of the ranks: {"data", world_size()} unless the context comes from mesh(dimensions).
  const Mesh& mesh() const;
  // Returns a context that arranges the same ranks as a grid of these dimensions (ordered_mesh), with a group
  // for each dimension. Call shutdown() on the result. Collective. Throws UsageError as ordered_mesh does.
  Context mesh(const Mesh& dimensions) const;
  // Group of the ranks that differ from this one in that dimension of the mesh only, this one included.
  // Throws UsageError naming the mesh's dimensions for an unknown one.
  const Group& group(const std::string& dimension) const;
  // Makes a group of the ranks that differ from this one in these dimensions of the mesh only. Dimensions
  // that the mesh lacks count as size 1. Collective.
  Group new_group_along(const std::vector<std::string>& dimensions) const;
  // Group of all ranks.
  const Group& world() const;
  // Attributes the calling thread to this context: memory that it allocates counts for this rank
  // (rondo/memory), its log lines have this rank's prefix, and threads that rondo starts from it inherit
  // both. Sets the thread's current device to device(). init() calls it; other threads of a program with
  // several contexts call it themselves. Any thread.
  void enter() const;
  // Makes a sub-group. Collective: every rank of the world calls it with the same list (distinct world ranks,
  // in group order); ranks that are not in the list get a handle whose member() is false. Throws UsageError
  // for an invalid list.
  Group new_group(const std::vector<int>& ranks) const;
  // Returns a context of the members of `group` (of this context) alone, for a strategy or other code that
  // runs on some of the ranks: world() contains the members, numbered as in the group, and new_group() is
  // collective among them only. The context shares the group's engine, and local_rank() is unchanged.
  // Collective: every member calls it. Throws UsageError for a rank that is not a member.
  Context within(const Group& group) const;
  // Waits for all ranks, then shuts the engines of all groups down; later use of the native groups of this
  // context is an error. Optional; call it once at the end of a successful run.
  void shutdown();

 private:
  friend Context init(const InitOptions&);
  struct State;
  explicit Context(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

// Joins the job. Blocks until all ranks have arrived or the timeout. Throws TimeoutError naming the ranks
// that did not arrive. Throws UsageError naming the variables for contradictory or missing settings; also for
// a device that libtorch does not see, for nccl if ranks share a GPU, for a role that no strategy serves (ps
// and evaluator of TF_CONFIG), and for a second call in one epoch of a job. Warns if ranks share a GPU.
Context init(const InitOptions& options = {});

}  // namespace rondo
