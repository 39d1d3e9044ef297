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

// Calls visit(factory) for every strategy factory. A factory has `Options`, `declarations()` and `make()`;
// code that uses only the first two does not link libtorch.
template <class Visit>
void for_each_strategy_factory(const Visit& visit) {
  visit(DdpStrategyFactory());
  visit(ShardedStrategyFactory());
  visit(LocalSgdStrategyFactory());
  visit(PipelineStrategyFactory());
  visit(ExpertStrategyFactory());
  visit(DataParallelStrategyFactory());
  visit(MirroredStrategyFactory());
  visit(CentralStorageStrategyFactory());
  visit(MultiWorkerMirroredStrategyFactory());
  visit(TpuStrategyFactory());
  visit(ServerStrategyFactory());
  visit(TensorStrategyFactory());
  visit(GroupedStrategyFactory());
}

}  // namespace rondo
