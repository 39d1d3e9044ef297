#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

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

// MNIST and what is stored like it: a directory with train-images-idx3-ubyte and train-labels-idx1-ubyte (and
// t10k-images-..., t10k-labels-... for validation; "." instead of "-" before idx is accepted), or one images
// file with its labels file beside it.
DataKind idx_kind();

}  // namespace rondo
