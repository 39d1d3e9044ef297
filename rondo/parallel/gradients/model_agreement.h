#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/nn/model_tensors.h"

namespace rondo {

// Copies the values of `tensors` on rank `root` to every rank of `group`, in few messages for many small
// tensors. All ranks pass tensors of equal shapes, dtypes and devices in the same order. Any dtype and
// strides are accepted. Collective and blocking. Autograd does not see the writes as in-place changes, so
// buffers may be refreshed between two forward passes that share one backward pass.
void broadcast_coalesced(const std::vector<at::Tensor>& tensors, const Group& group, int root);

// Throws MismatchError on every rank if names, shapes, dtypes or requires_grad of parameters, names, shapes
// or dtypes of buffers, or the options differ between ranks. The message names the first difference with both
// values. Throws UsageError if the model's parameters are on devices of several types. `options` has one line
// per option, such as "static_graph = 1". `sparse` lists the parameters with sparse gradients. Collective.
void verify_same_model(const ModelTensors& tensors, const std::vector<std::string>& options,
                       const Group& group, const std::vector<ModelTensor>& sparse = {});

// Throws MismatchError on every rank if ranks register communication hooks of different names. Collective.
void verify_same_hook(const std::string& name, const Group& group);

// Compares a 64-bit hash (XXH3) of every parameter's bytes. Throws MismatchError on every rank if any
// differs. The message names the first different parameter, the ranks that hold each value, and the number of
// different parameters. `when` ends the message's first clause, for example "after 100 synchronised steps".
// Collective.
void verify_same_values(const std::vector<ModelTensor>& parameters, const std::string& when,
                        const Group& group);

}  // namespace rondo
