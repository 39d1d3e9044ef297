#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <vector>

#include "rondo/backend/group.h"

namespace rondo {

// All-gather and reduce-scatter of pieces that need not be contiguous in memory, on any engine. The functions
// return at once; the work keeps the tensors alive. One tensor per rank, in rank order, each contiguous.

// Copies rank r's `input` to outputs[r]. outputs[own rank] may be the same memory as `input`.
c10::intrusive_ptr<c10d::Work> start_all_gather(const Group& group, std::vector<at::Tensor> outputs,
                                                const at::Tensor& input);
// Writes the sum over ranks of their inputs[own rank] to `output`.
c10::intrusive_ptr<c10d::Work> start_reduce_scatter(const Group& group, const at::Tensor& output,
                                                    std::vector<at::Tensor> inputs);

}  // namespace rondo
