#pragma once

#include <cstddef>

namespace rondo {

// Takes space for the bytes [offset, offset + length) of a file from its file system; the file's size stays
// as it is. Returns 0 or the error's number; what was taken before the error stays taken.
int take_file_space(int descriptor, std::size_t offset, std::size_t length);

}  // namespace rondo
