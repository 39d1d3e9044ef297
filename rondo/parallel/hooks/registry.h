#pragma once

#include <string>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/parallel/hooks/comm_hook.h"

namespace rondo {

// Returns the communication hook that `--codec` names. Names are a codec of collective/codec ("int8",
// "top_k:0.01"), "power_sgd" with optional settings ("power_sgd:rank=2,start=100,min_compression_rate=2"),
// and PyTorch's "allreduce", "fp16_compress", "bf16_compress" and "noop". Throws UsageError that lists the
// names, or names the invalid setting.
CommHook make_comm_hook(const std::string& name, const Group& group);

// Throws UsageError, with the name of the strategy, unless collective::make_codec() accepts `codec`. For
// strategies whose gradients can be encoded by a codec but not reduced by another hook.
void check_byte_codec(const std::string& codec, const std::string& strategy);

// Returns the names for make_comm_hook(), without settings, sorted. "none" is not included: it means no hook.
std::vector<std::string> comm_hook_names();

}  // namespace rondo
