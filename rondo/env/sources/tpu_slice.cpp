// A slice of TPUs: each host knows its number and the names of all
// (https://cloud.google.com/kubernetes-engine/docs/how-to/tpus). Several processes of a host are a
// launcher's.
#include "rondo/env/tpu_slice.h"
#include "rondo/env/source.h"

namespace rondo::env {
namespace {

Settings read_slice(const EnvironmentMap& environment, const Settings& higher) {
  Settings settings;
  const auto slice = read_tpu_slice(environment);
  if (!slice || !slice->worker || slice->hosts.empty()) return settings;
  const auto hosts = static_cast<long long>(slice->hosts.size());
  settings.set(Field::node_rank, *slice->worker, "TPU_WORKER_ID");
  settings.set(Field::num_nodes, hosts, "TPU_WORKER_HOSTNAMES");
  const bool several_on_a_host = higher.integer(Field::local_world_size).value_or(1) > 1 ||
                                 higher.integer(Field::local_rank).value_or(0) > 0;
  if (!several_on_a_host) {
    settings.set(Field::rank, *slice->worker, "TPU_WORKER_ID");
    settings.set(Field::world_size, hosts, "TPU_WORKER_HOSTNAMES");
  }
  if (hosts > 1)
    settings.set_default(Field::master_addr, slice->hosts.front(), "first of TPU_WORKER_HOSTNAMES");
  return settings;
}

}  // namespace

const Source tpu_slice_source = {"tpu_slice", read_slice, nullptr};

}  // namespace rondo::env
