#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "rondo/data/idx_options.h"
#include "rondo/data/open.h"

namespace rondo {

// Contents of an IDX file of bytes (the format of MNIST: two zero bytes, the value type, the number of
// dimensions, each dimension as a big-endian 32-bit number, the values).
struct IdxView {
  std::vector<std::int64_t> shape;
  std::span<const std::uint8_t> values;
};

// Reads the header of `file` and checks the length. Throws DataError naming `path`, the byte offset and what
// was expected there; also for a value type other than bytes, and for other than `dimensions` dimensions.
IdxView parse_idx(std::span<const std::uint8_t> file, const std::string& path, int dimensions);

}  // namespace rondo
