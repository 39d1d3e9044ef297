#pragma once

#include <string>

#include "rondo/backend/group.h"
#include "rondo/parallel/hooks/comm_hook.h"

namespace rondo {

// Averages gradients through a byte codec (collective/codec/codec.h), with error feedback where the codec
// needs it: `codec` is a name for collective::make_codec, as "int8" or "top_k:0.01". Any engine; float32
// buckets on the CPU (others: buckets of another dtype are all-reduced as they are, another device is a
// UsageError at the first backward pass). Throws UsageError naming the codecs there are when there is no such
// codec.
//
// The error feedback, 4 bytes a parameter and rank, belongs to the hook object and its copies: one hook for
// one model. It moves along when buckets are laid out anew, except what is left of sums of three ranks and
// more.
CommHook codec_hook(const Group& group, const std::string& codec);
// The same over an engine of another kind, which needs to have allreduce and _allgather_base alone.
CommHook codec_hook(const c10::intrusive_ptr<c10d::Backend>& engine, const std::string& codec);

}  // namespace rondo
