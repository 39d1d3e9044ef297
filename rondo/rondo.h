#pragma once

// The public interface, except the plug-in interfaces in rondo/extend/. Everything that these headers include
// is public: `make docs-api` documents it and docs/api.md lists it.

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
