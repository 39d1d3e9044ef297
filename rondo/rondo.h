#pragma once

// All that a program may rely on but the interfaces of rondo/extend/. What these headers include is public:
// documented by `make docs-api` and listed in docs/api.md.

// libtorch's optimizers.
#include <torch/optim.h>

#include "rondo/checkpoint.h"
#include "rondo/collectives.h"
#include "rondo/core.h"
#include "rondo/data.h"
#include "rondo/memory.h"
#include "rondo/models.h"
#include "rondo/nn.h"
#include "rondo/parallel.h"
#include "rondo/plan.h"
#include "rondo/precision.h"
#include "rondo/strategy.h"
#include "rondo/train.h"
