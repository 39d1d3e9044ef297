#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "rondo/checkpoint/named_tensors.h"

namespace rondo {

// A tensor for a file that need not be there before it is written: a shard's whole, say, put together when it
// is its turn and dropped when it is in the file.
struct TensorSource {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<std::int64_t> sizes;
  // Those with the same one are one tensor under several names. Not followed.
  const void* identity = nullptr;
  // Gives the tensor, on any device and with any strides.
  std::function<at::Tensor()> make;
};

using TensorSources = std::vector<TensorSource>;

// Of tensors that are there.
TensorSource source_of(const NamedTensor& tensor);
TensorSources sources_of(const NamedTensors& tensors);

// The numbers of those that a file holds, one for each tensor, in the order in which it is written: whoever
// makes them together with a writer makes them in this order. Throws UsageError for a name that is there
// twice and for a dtype that no file can hold.
std::vector<std::size_t> order_in_file(const TensorSources& sources);

}  // namespace rondo
