#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/nn/model_tensors.h"

namespace rondo {

// Gives every rank of `group` the values that the tensors have on rank `root`, few messages for many small
// tensors. All ranks pass tensors of equal shapes, dtypes and devices in the same order; any dtype and
// strides. Blocking. Does not count as an in-place change for autograd: buffers may be refreshed between two
// forward passes that share one backward pass.
void broadcast_coalesced(const std::vector<at::Tensor>& tensors, const Group& group, int root);

// Collective. Throws MismatchError on every rank when names, shapes, dtypes or requires_grad of parameters
// and buffers, or the options, are not the same on all ranks; names the first that differs and both sides.
// Throws UsageError where the model's parameters are on devices of several types. `options` has a line for
// each, as "static_graph = 1"; `sparse` are the parameters whose gradients are sparse.
void verify_same_model(const ModelTensors& tensors, const std::vector<std::string>& options,
                       const Group& group, const std::vector<ModelTensor>& sparse = {});

// Collective. Throws MismatchError on every rank when ranks register communication hooks of different names.
void verify_same_hook(const std::string& name, const Group& group);

// Collective. Compares a 64-bit hash (XXH3) of every parameter's bytes; throws MismatchError on every rank
// naming the first parameter that differs, which ranks hold which value, and how many others differ. `when`
// ends the message's first clause, for example "after 100 synchronised steps".
void verify_same_values(const std::vector<ModelTensor>& parameters, const std::string& when,
                        const Group& group);

}  // namespace rondo
