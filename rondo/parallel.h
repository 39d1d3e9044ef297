#pragma once

// Strategies by name with their options; DistributedDataParallel and fully_shard() for training loops that
// the caller writes.
#include "rondo/parallel/ddp/backward_trace.h"
#include "rondo/parallel/ddp/ddp.h"
#include "rondo/parallel/ddp/ddp_strategy_options.h"
#include "rondo/parallel/ddp/join.h"
#include "rondo/parallel/ddp/options.h"
#include "rondo/parallel/experts/expert_options.h"
#include "rondo/parallel/grouped/group_place.h"
#include "rondo/parallel/grouped/grouped_options.h"
#include "rondo/parallel/local_sgd/local_sgd_options.h"
#include "rondo/parallel/pipeline/pipeline_options.h"
#include "rondo/parallel/registry.h"
#include "rondo/parallel/replicas/replicas_options.h"
#include "rondo/parallel/schedule/communication_options.h"
#include "rondo/parallel/server/server_options.h"
#include "rondo/parallel/sharded/fully_shard.h"
#include "rondo/parallel/sharded/sharded_options.h"
#include "rondo/parallel/tensor/tensor_options.h"
#include "rondo/parallel/tpu/tpu_options.h"
