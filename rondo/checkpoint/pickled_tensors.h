#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "rondo/checkpoint/named_tensors.h"

namespace rondo {

// The bytes of a tensor file inside an archive, and what keeps them alive.
struct PickledRecord {
  std::span<const std::byte> bytes;
  std::shared_ptr<void> owner;
};

// The tensors that a pickle of libtorch or Python's torch.save names, under the names of the dicts and module
// attributes around them, joined by dots. The pickle is read as data: no class is looked up, no function is
// called, nothing is imported, and a tensor must lie inside its record. `record` gives the bytes of a key.
// Throws DataError naming `file` for a pickle that is cut or nested too deep, and for an object that would
// have to be restored by its own code (__setstate__) to have tensors.
NamedTensors read_pickled_tensors(std::string_view pickle,
                                  const std::function<PickledRecord(const std::string& key)>& record,
                                  const std::string& file);

}  // namespace rondo
