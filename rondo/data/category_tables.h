#pragma once

#include <span>

#include "rondo/data/unicode_tables.h"

// Categories of characters as byte-pair tokenizers cut texts by them, sorted by code point.
namespace rondo::unicode {

extern const std::span<const Range> letters;      // \p{L}
extern const std::span<const Range> numbers;      // \p{N}
extern const std::span<const Range> white_space;  // \s

}  // namespace rondo::unicode
