#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <vector>

#include "rondo/backend/group.h"

namespace rondo {

// all_gather and reduce_scatter of pieces that need not be neighbours in memory, on any engine. Return at
// once; the tensors stay alive as long as the work. One tensor a rank, in rank order, each contiguous.

// outputs[r] becomes rank r's `input`. outputs[own rank] may be the same memory as `input`.
c10::intrusive_ptr<c10d::Work> start_all_gather(const Group& group, std::vector<at::Tensor> outputs,
                                                const at::Tensor& input);
// `output` becomes the sum over ranks of their inputs[own rank].
c10::intrusive_ptr<c10d::Work> start_reduce_scatter(const Group& group, const at::Tensor& output,
                                                    std::vector<at::Tensor> inputs);

}  // namespace rondo
