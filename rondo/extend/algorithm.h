#pragma once

// Collective algorithms by name: schedules of messages, and their executor over any channel. Custom
// algorithms are schedules too. Needs no libtorch.
#include "rondo/base/cancel.h"
#include "rondo/base/collective_call.h"
#include "rondo/channel/channel.h"
#include "rondo/collective/algorithms/registry.h"
#include "rondo/collective/dtype.h"
#include "rondo/collective/executor.h"
#include "rondo/collective/request.h"
#include "rondo/collective/schedule.h"
