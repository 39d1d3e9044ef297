#include "rondo/server/task.h"

#include "rondo/base/log.h"
#include "rondo/base/text.h"
#include "rondo/env/launcher_files.h"
#include "rondo/server/service.h"

namespace rondo::server {

void run_task(const env::Cluster& cluster, const env::EnvironmentMap& environment,
              const std::function<bool()>& stop_requested, Duration timeout) {
  const auto secret = control::JobSecret::require(
      [&](std::string_view variable) { return env::lookup(environment, variable); });
  log::set_prefix(str("server ", cluster.index));
  Service service({.address = cluster.servers[static_cast<std::size_t>(cluster.index)],
                   .index = cluster.index,
                   .memory = env::lookup(environment, kMemoryVariable).value_or(""),
                   .absence = timeout,
                   .ended_workers = env::lookup(environment, env::kEndedWorkersVariable).value_or(""),
                   .worker_processes = cluster.workers.size()},
                  secret);
  service.run([&] { return stop_requested() && !service.serves_somebody(); });
}

}  // namespace rondo::server
