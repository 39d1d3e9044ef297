#pragma once

// Communication hooks and encodings of gradients, ready-made and of one's own.
#include "rondo/backend/coded_collectives.h"
#include "rondo/collective/codec/codec.h"
#include "rondo/parallel/ddp/comm_hook.h"
#include "rondo/parallel/ddp/hooks/codec_hook.h"
#include "rondo/parallel/ddp/hooks/default_hooks.h"
#include "rondo/parallel/ddp/hooks/power_sgd_hook.h"
#include "rondo/parallel/ddp/hooks/registry.h"
#include "rondo/parallel/schedule/bucket_future.h"
