#pragma once

// Models and losses of any form, and optimizers by name. Inside a model: units, activation checkpointing,
// tensor, sequence and expert parallelism, and layers whose result does not depend on how samples are
// distributed.
#include "rondo/nn/activation_checkpoint.h"
#include "rondo/nn/experts/mixture_of_experts.h"
#include "rondo/nn/experts/routing.h"
#include "rondo/nn/gelu.h"
#include "rondo/nn/layers.h"
#include "rondo/nn/linear.h"
#include "rondo/nn/loss.h"
#include "rondo/nn/model.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/nn/optimizers/norm_sum.h"
#include "rondo/nn/optimizers/optimizer.h"
#include "rondo/nn/optimizers/optimizer_options.h"
#include "rondo/nn/parallel_style.h"
#include "rondo/nn/sample_dropout.h"
#include "rondo/nn/shard.h"
#include "rondo/nn/step_figures.h"
#include "rondo/nn/sync_batch_norm.h"
#include "rondo/nn/tensor_parallel/parallelize.h"
#include "rondo/nn/tensor_parallel/ring_attention.h"
#include "rondo/nn/unit.h"
#include "rondo/nn/unit_state.h"
#include "rondo/nn/wrap.h"
