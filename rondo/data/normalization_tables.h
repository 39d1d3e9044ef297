#pragma once

#include <cstdint>
#include <span>

// Tables of Unicode's canonical forms, without the syllables of Hangul, which are computed.
namespace rondo::unicode {

// The full canonical decomposition of a character: one to four characters, filled up with 0.
struct Decomposition {
  char32_t from, to[4];
};

// Two characters that NFC joins.
struct Composition {
  char32_t first, second, to;
};

// Characters of one combining class, not 0.
struct ClassRange {
  char32_t first, last;
  std::uint8_t combining_class;
};

extern const std::span<const Decomposition> decompositions;  // sorted by `from`
extern const std::span<const Composition> compositions;      // sorted by `first`, then `second`
extern const std::span<const ClassRange> combining_classes;  // sorted

}  // namespace rondo::unicode
