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

// The bytes of a tensor in an archive, with their owner.
struct PickledRecord {
  std::span<const std::byte> bytes;
  std::shared_ptr<void> owner;
};

// Returns the tensors in a pickle of libtorch or Python's torch.save. Names are the keys of the enclosing
// dicts and module attributes, joined by dots. The pickle is parsed as data: no class is looked up, no
// function is called, nothing is imported, and every tensor must lie inside its record. `record` returns the
// bytes of a key. Throws DataError naming `file` for a truncated or too deeply nested pickle, and for an
// object with tensors that only its own code (__setstate__) could restore.
NamedTensors read_pickled_tensors(std::string_view pickle,
                                  const std::function<PickledRecord(const std::string& key)>& record,
                                  const std::string& file);

}  // namespace rondo
