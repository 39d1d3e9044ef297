#pragma once

#include <string>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/parallel/hooks/comm_hook.h"

namespace rondo {

// The communication hook that `--codec` names: a codec of collective/codec ("int8", "top_k:0.01"),
// "power_sgd" with settings as in "power_sgd:rank=2,start=100,min_compression_rate=2", or one of PyTorch's
// "allreduce", "fp16_compress", "bf16_compress" and "noop". Throws UsageError naming what there is, or the
// setting.
CommHook make_comm_hook(const std::string& name, const Group& group);

// For strategies whose gradients a codec may encode and nothing else may take charge of. Throws UsageError,
// with the name of the strategy, unless collective::make_codec makes `codec`.
void check_byte_codec(const std::string& codec, const std::string& strategy);

// Names for make_comm_hook, without settings; sorted. "none" is not among them: it means no hook.
std::vector<std::string> comm_hook_names();

}  // namespace rondo
