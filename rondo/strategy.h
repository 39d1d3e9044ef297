#pragma once

// Strategies, and a model that a strategy has prepared: one interface for all strategies.
#include "rondo/strategy/clip_grad_norm.h"
#include "rondo/strategy/distributed_dataset.h"
#include "rondo/strategy/distributed_variable.h"
#include "rondo/strategy/prepared_model.h"
#include "rondo/strategy/replica_context.h"
#include "rondo/strategy/replica_value.h"
#include "rondo/strategy/sample_division.h"
#include "rondo/strategy/shard_directory.h"
#include "rondo/strategy/sharded_state.h"
#include "rondo/strategy/sharded_tensor.h"
#include "rondo/strategy/state_dict.h"
#include "rondo/strategy/step_totals.h"
#include "rondo/strategy/strategy.h"
#include "rondo/strategy/summon_full_params.h"
#include "rondo/strategy/training.h"
