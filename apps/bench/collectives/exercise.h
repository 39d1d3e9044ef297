#pragma once

#include <ATen/core/Tensor.h>
#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/base/bytes.h"

namespace rondo::bench {

// Where buffers live.
enum class Memory {
  ordinary,    // malloc: an engine must copy
  registered,  // shared with the peers on this host, see registered_memory.h
};

// A zero-filled tensor of one dimension.
at::Tensor make_buffer(std::int64_t elements, at::ScalarType dtype, Memory memory);
// What a rank puts in: small whole numbers, exact in every dtype, 1..7 by place, plus the rank. And its sum
// over ranks.
at::Tensor test_pattern(int rank, std::int64_t elements, at::ScalarType dtype);
at::Tensor test_sum(int ranks, std::int64_t elements, at::ScalarType dtype);

// One operation on one set of buffers. All functions are collective.
struct Exercise {
  std::function<void()> run;
  // Writes the input anew, as a backward pass would; not part of the time.
  std::function<void()> write;
  // Returns when all ranks have called it, where there is such a thing; not part of the time.
  std::function<void()> meet;
  // Runs once on numbers that differ by rank and place, and checks every element of the result.
  std::function<bool()> correct;
  // Parts of a run that count: a ping-pong is two messages.
  double time_share = 1;
};

// Names of all operations, as in the JSON.
const std::vector<std::string>& operation_names();

// Bytes as NCCL's tests count them: the size of the larger of input and output. The smallest size that can be
// divided among `ranks` is one element each.
Bytes smallest_size(const std::string& operation, int ranks, at::ScalarType dtype);

// Algorithm bandwidth times this is what each link carried: 2(n-1)/n for all_reduce, (n-1)/n where each rank
// keeps its part, 1 otherwise.
double bus_factor(const std::string& operation, int ranks);

// `bytes` must be at least smallest_size() and a multiple of it. `direct`: by ExtendedBackend's direct
// call, where there is one (all_reduce).
Exercise make_exercise(const std::string& operation, const c10::intrusive_ptr<c10d::Backend>& backend,
                       Bytes bytes, at::ScalarType dtype, Memory memory, bool direct = false);

}  // namespace rondo::bench
