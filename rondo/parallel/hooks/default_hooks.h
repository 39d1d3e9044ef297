#pragma once

#include "rondo/backend/group.h"
#include "rondo/parallel/hooks/comm_hook.h"

// PyTorch's default communication hooks (torch.distributed.algorithms.ddp_comm_hooks.default_hooks), for
// DistributedDataParallel::register_comm_hook. Any engine and device.
namespace rondo {

// Divides and all-reduces: the same gradients as without a hook.
CommHook allreduce_hook(const Group& group);

// All-reduces in float16, half the bytes of float32: converted, divided, added by the engine in
// that type, converted back. Magnitudes above 65504 become infinite in float16. Buckets that hold no
// floating-point numbers are all-reduced as they are.
CommHook fp16_compress_hook(const Group& group);
// The same in bfloat16.
CommHook bf16_compress_hook(const Group& group);

// Averages by a reduce-scatter and an all-gather, TensorFlow's CommunicationImplementation.RING. A bucket
// whose length the ranks do not divide is copied.
CommHook ring_hook(const Group& group);

// Around any hook: it sees, and communicates, the bucket in float16.
CommHook fp16_compress_wrapper(CommHook hook);
// The same in bfloat16.
CommHook bf16_compress_wrapper(CommHook hook);

// Communicates nothing, so ranks drift apart: shows how fast training would be without communication.
CommHook noop_hook();

// For hooks: starts the mean of `tensor` over the ranks, in place.
BucketFuture start_average(const Group& group, const at::Tensor& tensor);
// For hooks: starts the sum.
BucketFuture start_sum(const Group& group, const at::Tensor& tensor);
// The same over an engine.
BucketFuture start_average(c10d::Backend& engine, const at::Tensor& tensor);
// For hooks: starts the sum over an engine.
BucketFuture start_sum(c10d::Backend& engine, const at::Tensor& tensor);

}  // namespace rondo
