#pragma once

#include <optional>
#include <string>

#include "rondo/base/time.h"
#include "rondo/env/environment.h"

namespace rondo::launch {

// What a worker is told about itself.
struct WorkerPlace {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  int node_rank = 0;
  int num_nodes = 1;
  std::string role = "default";
  std::optional<int> role_rank;        // among the processes of the role; empty: the rank
  std::optional<int> role_world_size;  // likewise; empty: all
  std::string master_addr = "127.0.0.1";
  int master_port = 29500;
  std::string run_id;
  int restart_count = 0;
  int max_restarts = 0;
  std::string job_memory;       // directory that outlives the attempt; empty: none
  std::string error_file;       // empty: none
  std::string preemption_file;  // likewise
  int store_descriptor = -1;
  std::optional<int> omp_threads;
  std::string stop_signals;  // for kStopSignalsVariable; empty: what the environment says
  std::string interface;     // empty: what the environment says
  std::optional<Duration> join_timeout;
  // Columns of the terminal on which the launcher shows this worker's output; empty when it is none.
  std::optional<int> terminal_width;
};

// Environment variable that tells a worker that its output, though a pipe, is shown on a terminal, and how
// wide that is: progress bars look for it.
inline constexpr const char* kTerminalWidthVariable = "RONDO_TERMINAL_WIDTH";

// How long a worker waits for all others to appear, in seconds; rondo::init reads it.
inline constexpr const char* kJoinTimeoutVariable = "RONDO_JOIN_TIMEOUT";

// The same where nothing is said: the default of InitOptions::timeout.
inline constexpr Duration kDefaultJoinTimeout = std::chrono::minutes(5);

// Under this key of the launcher's store ranks of a job on several hosts say how long other ranks wait for
// them at most: a whole number of milliseconds.
inline constexpr const char* kPatienceKey = "rondo/patience_ms";

// The environment of a worker: `base` and, over it, torchrun's whole set, RONDO_LAUNCHER, RONDO_STORE_FD,
// RONDO_JOB_MEMORY, RONDO_PREEMPTION_FILE and RONDO_TERMINAL_WIDTH. An interface becomes GLOO_SOCKET_IFNAME,
// NCCL_SOCKET_IFNAME and Open MPI's OMPI_MCA_btl_tcp_if_include. OMP_NUM_THREADS is set to 1 when there are
// several workers and neither `base` nor `omp_threads` says otherwise.
env::EnvironmentMap worker_environment(env::EnvironmentMap base, const WorkerPlace& place);

}  // namespace rondo::launch
