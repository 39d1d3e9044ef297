#pragma once

#include <string>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/parallel/ddp/bucket_plan.h"

namespace rondo {

// One entry a parameter, for plan_buckets.
std::vector<GradientSpec> gradient_specs(const std::vector<ModelTensor>& parameters);

// A flat tensor that holds the gradients of `members` (indices into `parameters`, of one dtype and device)
// one after the other. places[i] becomes the part for parameter i, strided like the parameter where that is
// possible, so that autograd and optimizers find the layout they would have chosen. Parts share memory with
// the bucket but are no views in autograd's eyes: Optimizer::zero_grad detaches gradients in place, which
// views refuse. `registered`: peers can reach it, whatever its size (backend/memory/registered_memory.h).
at::Tensor make_bucket(const std::vector<ModelTensor>& parameters, const std::vector<std::size_t>& members,
                       std::vector<at::Tensor>& places, bool registered = false);

// to.copy_(from), which for the small gradients of a small model takes longer than the bytes do.
void copy_gradient(const at::Tensor& to, const at::Tensor& from);

// For messages: "gradients 'a' to 'b'", and "rank 1 of group 'world'".
std::string name_range(const std::vector<ModelTensor>& parameters, const std::vector<std::size_t>& members);
std::string place_of(const Group& group);

}  // namespace rondo
