#pragma once

#include <string>

#include "rondo/backend/group.h"
#include "rondo/parallel/hooks/comm_hook.h"

namespace rondo {

// Returns a hook that averages gradients through a byte codec (collective/codec/codec.h), with error feedback
// if the codec needs it. `codec` is a name for collective::make_codec, such as "int8" or "top_k:0.01". Works
// with any engine. Float32 buckets are encoded on the CPU: a device's buckets are copied there and back.
// Buckets of another dtype are all-reduced as they are. Throws UsageError with the list of codecs for an
// unknown name.
//
// The hook object and its copies share the error feedback, 4 bytes per parameter element and rank, so use one
// hook per model. The error feedback survives a change of the bucket layout, except the residuals of the sums
// with three or more ranks.
CommHook codec_hook(const Group& group, const std::string& codec);
// Like above, over an engine that only needs allreduce and _allgather_base.
CommHook codec_hook(const c10::intrusive_ptr<c10d::Backend>& engine, const std::string& codec);

}  // namespace rondo
