#pragma once

#include <optional>
#include <string>

#include "rondo/base/time.h"
#include "rondo/env/environment.h"

namespace rondo::launch {

// The place of a worker in its job, for its environment.
struct WorkerPlace {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  int node_rank = 0;
  int num_nodes = 1;
  std::string role = "default";
  std::optional<int> role_rank;        // rank among the processes of the role; empty: same as `rank`
  std::optional<int> role_world_size;  // number of processes with the role; empty: `world_size`
  std::string master_addr = "127.0.0.1";
  int master_port = 29500;
  std::string run_id;
  int restart_count = 0;
  int max_restarts = 0;
  std::string job_memory;       // directory that outlives the attempt; empty: none
  std::string error_file;       // empty: none
  std::string preemption_file;  // empty: none
  int store_descriptor = -1;
  std::optional<int> omp_threads;
  std::string stop_signals;  // value of kStopSignalsVariable; empty: keep the environment's
  std::string interface;     // empty: keep the environment's
  std::optional<Duration> join_timeout;
  // Width in columns of the terminal on which the launcher shows this worker's output; empty if it is not a
  // terminal.
  std::optional<int> terminal_width;
};

// Environment variable with the join timeout of a worker in seconds; rondo::init reads it.
inline constexpr const char* kJoinTimeoutVariable = "RONDO_JOIN_TIMEOUT";

// Default join timeout: the default of InitOptions::timeout.
inline constexpr Duration kDefaultJoinTimeout = std::chrono::minutes(5);

// Key of the launcher's store under which ranks of a multi-host job report how long other ranks wait for them
// at most, in whole milliseconds.
inline constexpr const char* kPatienceKey = "rondo/patience_ms";

// Returns a worker's environment: `base`, overridden by torchrun's whole set, RONDO_LAUNCHER, RONDO_STORE_FD,
// RONDO_JOB_MEMORY, RONDO_PREEMPTION_FILE and RONDO_TERMINAL_WIDTH. An interface becomes GLOO_SOCKET_IFNAME,
// NCCL_SOCKET_IFNAME and Open MPI's OMPI_MCA_btl_tcp_if_include. OMP_NUM_THREADS is set to 1 if there are
// several workers and neither `base` nor `omp_threads` sets it.
env::EnvironmentMap worker_environment(env::EnvironmentMap base, const WorkerPlace& place);

}  // namespace rondo::launch
