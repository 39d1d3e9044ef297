#include "rondo/launch/worker_environment.h"

#include "rondo/base/terminal.h"
#include "rondo/base/text.h"
#include "rondo/channel/shared_store.h"
#include "rondo/env/launcher_files.h"
#include "rondo/launch/stop_signals.h"

namespace rondo::launch {

env::EnvironmentMap worker_environment(env::EnvironmentMap base, const WorkerPlace& place) {
  const std::string rank = std::to_string(place.rank);
  const std::string world_size = std::to_string(place.world_size);
  base["RANK"] = rank;
  base["WORLD_SIZE"] = world_size;
  base["LOCAL_RANK"] = std::to_string(place.local_rank);
  base["LOCAL_WORLD_SIZE"] = std::to_string(place.local_world_size);
  base["GROUP_RANK"] = std::to_string(place.node_rank);
  base["GROUP_WORLD_SIZE"] = std::to_string(place.num_nodes);
  base["ROLE_NAME"] = place.role;
  base["ROLE_RANK"] = std::to_string(place.role_rank.value_or(place.rank));
  base["ROLE_WORLD_SIZE"] = std::to_string(place.role_world_size.value_or(place.world_size));
  base["MASTER_ADDR"] = place.master_addr;
  base["MASTER_PORT"] = std::to_string(place.master_port);
  base["TORCHELASTIC_RUN_ID"] = place.run_id;
  base["TORCHELASTIC_RESTART_COUNT"] = std::to_string(place.restart_count);
  base["TORCHELASTIC_MAX_RESTARTS"] = std::to_string(place.max_restarts);
  // With PyTorch's env://, rank 0 then serves the store: this launcher keeps no port open.
  base["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  base.emplace("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
  if (place.error_file.empty()) {
    base.erase("TORCHELASTIC_ERROR_FILE");
  } else {
    base["TORCHELASTIC_ERROR_FILE"] = place.error_file;
  }
  base.erase(env::kPreemptionFileVariable);
  if (!place.preemption_file.empty()) base[env::kPreemptionFileVariable] = place.preemption_file;
  if (!place.interface.empty()) {
    for (const char* variable : {"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "OMPI_MCA_btl_tcp_if_include"})
      base[variable] = place.interface;
  }
  base.erase(kJoinTimeoutVariable);
  if (place.join_timeout) base[kJoinTimeoutVariable] = str(seconds(*place.join_timeout));
  base["RONDO_LAUNCHER"] = "1";
  if (!place.stop_signals.empty()) base[kStopSignalsVariable] = place.stop_signals;
  base.erase(env::kJobMemoryVariable);
  if (!place.job_memory.empty()) base[env::kJobMemoryVariable] = place.job_memory;
  base.erase(kStoreDescriptorVariable);
  if (place.store_descriptor >= 0) base[kStoreDescriptorVariable] = std::to_string(place.store_descriptor);
  base.erase(kTerminalWidthVariable);
  if (place.terminal_width) base[kTerminalWidthVariable] = std::to_string(*place.terminal_width);
  if (place.omp_threads) {
    base["OMP_NUM_THREADS"] = std::to_string(*place.omp_threads);
  } else if (place.local_world_size > 1) {
    base.emplace("OMP_NUM_THREADS", "1");
  }
  return base;
}

}  // namespace rondo::launch
