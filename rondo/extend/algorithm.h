#pragma once

// Collective algorithms by name: plans of messages, and what executes them over any channel. Algorithms of
// one's own are plans, too. Needs no libtorch.
#include "rondo/base/cancel.h"
#include "rondo/base/collective_call.h"
#include "rondo/channel/channel.h"
#include "rondo/collective/algorithms/registry.h"
#include "rondo/collective/dtype.h"
#include "rondo/collective/executor.h"
#include "rondo/collective/plan.h"
#include "rondo/collective/request.h"
