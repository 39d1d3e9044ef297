#pragma once

// Communication hooks and encodings of gradients, built-in and custom.
#include "rondo/backend/coded_collectives.h"
#include "rondo/backend/engine/codec_state.h"
#include "rondo/collective/codec/codec.h"
#include "rondo/parallel/hooks/codec_hook.h"
#include "rondo/parallel/hooks/comm_hook.h"
#include "rondo/parallel/hooks/default_hooks.h"
#include "rondo/parallel/hooks/power_sgd_hook.h"
#include "rondo/parallel/hooks/registry.h"
#include "rondo/parallel/schedule/bucket_future.h"
