#pragma once

#include "rondo/parallel/ddp/ddp_strategy_options.h"
#include "rondo/parallel/experts/expert_options.h"
#include "rondo/parallel/grouped/grouped_options.h"
#include "rondo/parallel/local_sgd/local_sgd_options.h"
#include "rondo/parallel/pipeline/pipeline_options.h"
#include "rondo/parallel/replicas/replicas_options.h"
#include "rondo/parallel/server/server_options.h"
#include "rondo/parallel/sharded/sharded_options.h"
#include "rondo/parallel/tensor/tensor_options.h"
#include "rondo/parallel/tpu/tpu_options.h"

namespace rondo {

// Calls visit(folder) for every folder of strategies. A folder has `Options`, `declarations()` and `make()`;
// code that uses only the first two does not link libtorch.
template <class Visit>
void for_each_strategy_folder(const Visit& visit) {
  visit(DdpFolder());
  visit(ShardedFolder());
  visit(LocalSgdFolder());
  visit(PipelineFolder());
  visit(ExpertFolder());
  visit(DataParallelFolder());
  visit(MirroredFolder());
  visit(CentralStorageFolder());
  visit(MultiWorkerMirroredFolder());
  visit(TpuFolder());
  visit(ServerFolder());
  visit(TensorFolder());
  visit(GroupedFolder());
}

}  // namespace rondo
