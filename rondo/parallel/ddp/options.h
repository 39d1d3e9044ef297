#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rondo/base/bytes.h"

namespace rondo {

// Every rank must give the same options; a difference is a MismatchError naming the option.
struct DdpOptions {
  // Gradients travel in buckets of about this size; a parameter is never split, so a bucket may be larger.
  // Default 25 MiB. The native engine reduces gradients of 64 KiB and more one by one, without a bucket.
  std::optional<Bytes> bucket_bytes;
  // A small first bucket starts communication early. Default: bucket_bytes if that is given, otherwise 1 MiB.
  std::optional<Bytes> first_bucket_bytes;
  // Some parameters get no gradient in some steps. Without it such a step is an error that names them.
  bool find_unused_parameters = false;
  // The same parameters get gradients in every step: those that got none in the first step are never waited
  // for again, so unlike find_unused_parameters later steps cost nothing extra.
  bool static_graph = false;
  // Buffers (running statistics) follow rank 0's at the start of a forward pass.
  bool broadcast_buffers = true;
  // After so many synchronised backward passes compare a hash of every parameter across ranks; 0 is never.
  int check_parameters_every = 0;
  // `.grad` becomes a view of its bucket, which saves a copy of every gradient in memory and one pass over
  // it. A gradient kept beyond the next backward pass must then be cloned.
  bool gradient_as_bucket_view = true;
  // Names of parameters and buffers that are none of data parallelism's business: each rank has its own, and
  // they are neither compared nor broadcast nor reduced.
  std::vector<std::string> ignored = {};
};

}  // namespace rondo
