#include "rondo/server/coordinate.h"

#include <memory>
#include <thread>

#include "rondo/base/error.h"
#include "rondo/base/log.h"
#include "rondo/base/text.h"
#include "rondo/control/secret.h"
#include "rondo/env/cluster.h"
#include "rondo/env/launcher_files.h"

namespace rondo::server {
namespace {

void finish(Coordinator& coordinator, const std::function<void(Coordinator&)>& work) {
  try {
    work(coordinator);
  } catch (const CancelledError&) {
    coordinator.join();  // throws the error that caused the cancellation
    throw;
  }
  coordinator.join();
}

void coordinate_alone(const RemoteFunctions& functions, const std::function<void(Coordinator&)>& work,
                      const CoordinatorOptions& options, Duration timeout) {
  const std::string secret = control::JobSecret::make().text();
  std::jthread worker;  // declared first, so that it is joined after the coordinator has ended it
  Coordinator coordinator(secret, options);
  worker = std::jthread([&functions, secret, timeout, address = coordinator.address()] {
    try {
      work_for_coordinator(address, secret, /*worker=*/0, functions, timeout);
    } catch (const std::exception& error) {
      log::warning("the coordinator's worker has ended: ", error.what());
    }
  });
  finish(coordinator, work);
}

}  // namespace

void coordinate(const RemoteFunctions& functions, const std::function<void(Coordinator&)>& work,
                CoordinatorOptions options, const env::EnvironmentMap& environment, Duration timeout) {
  const auto cluster = env::read_workers(environment);
  if (!cluster || cluster->workers.size() == 1) return coordinate_alone(functions, work, options, timeout);
  if (cluster->is_server) {
    throw UsageError(
        str("TF_CONFIG gives this process the role ps (index ", cluster->index,
            "), and a coordinator has only workers; start the job without parameter servers: rondo run "
            "--workers N"));
  }
  const auto lookup = [&](std::string_view variable) { return env::lookup(environment, variable); };
  const std::string secret = control::JobSecret::require(lookup).text();
  const std::string& address = cluster->workers.front();
  if (cluster->index > 0) return work_for_coordinator(address, secret, cluster->index, functions, timeout);
  options.address = address;
  const auto ended = std::make_shared<const env::EndedWorkers>(
      env::lookup(environment, env::kEndedWorkersVariable).value_or(""));
  options.workers_have_ended = [ended, workers = cluster->workers.size()] {
    for (std::size_t worker = 1; worker < workers; ++worker) {
      if (!ended->any_of(worker, 1)) return false;
    }
    return true;
  };
  Coordinator coordinator(secret, options);
  finish(coordinator, work);
}

}  // namespace rondo::server
