#pragma once

#include <functional>
#include <string>
#include <vector>

#include "rondo/checkpoint/named_tensors.h"

namespace rondo {

struct StoredTensor;

// Checks that `source` fits `target`: the same names, shapes and dtypes, and what `target` shares is shared
// or equal in `source`. Returns the function that copies the elements, for the caller to run when everything
// else has been checked too. Of a tensor of which `shards` has one, that shard stands for it: its full shape
// and its dtype are compared, and the elements that it has are copied into it. Throws DataError naming the
// first tensor of `target` that differs and how; `what` describes the source in it.
std::function<void()> prepare_assign(const NamedTensors& target, const std::vector<StoredTensor>& source,
                                     const std::string& what, const std::vector<Shard>& shards = {});
std::function<void()> prepare_assign(const NamedTensors& target, const NamedTensors& source,
                                     const std::string& what, const std::vector<Shard>& shards = {});

}  // namespace rondo
