#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rondo/base/bytes.h"

namespace rondo {

// Options of DistributedDataParallel. All ranks must pass the same options; a difference is a MismatchError
// that names the option.
struct DdpOptions {
  // Approximate bucket size. A parameter is never split, so a bucket may be larger. Default 25 MiB. The
  // native engine reduces each gradient of 64 KiB or more in place, without a bucket.
  std::optional<Bytes> bucket_bytes;
  // Size of the first bucket; a small one starts communication early. Default: bucket_bytes if set, otherwise
  // 1 MiB.
  std::optional<Bytes> first_bucket_bytes;
  // Allows parameters without a gradient in some steps. If false, such a step is an error that names them.
  bool find_unused_parameters = false;
  // Declares that the same parameters get gradients in every step. Parameters without a gradient in the first
  // step are never waited for again, so unlike find_unused_parameters later steps have no extra cost.
  bool static_graph = false;
  // Whether forward passes first copy rank 0's buffers (running statistics) to all ranks.
  bool broadcast_buffers = true;
  // Number of synchronised backward passes between comparisons of a hash of every parameter across ranks; 0
  // is never.
  int check_parameters_every = 0;
  // Whether `.grad` becomes a view of its bucket, which saves a copy of all gradients in memory and one pass
  // over it. A gradient kept beyond the next backward pass must then be cloned.
  bool gradient_as_bucket_view = true;
  // Names of parameters and buffers that are local to each rank: they are not compared, broadcast or reduced.
  std::vector<std::string> ignored = {};
};

}  // namespace rondo
