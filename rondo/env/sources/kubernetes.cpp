// Kubernetes: a pod of an Indexed Job has its index and no other information.
#include "rondo/env/settings.h"

namespace rondo::env {
namespace {

Settings read_kubernetes(const EnvironmentMap& environment, const Settings& higher) {
  Settings settings;
  settings.take_integer(Field::node_rank, environment, "JOB_COMPLETION_INDEX");
  // The index numbers pods. It is also the rank, unless another source reports several processes per pod.
  const bool several_in_a_pod = higher.integer(Field::local_world_size).value_or(1) > 1 ||
                                higher.integer(Field::local_rank).value_or(0) > 0;
  if (!several_in_a_pod) settings.take_integer(Field::rank, environment, "JOB_COMPLETION_INDEX");
  return settings;
}

}  // namespace

const Source kubernetes_source = {"kubernetes", read_kubernetes, nullptr};

}  // namespace rondo::env
