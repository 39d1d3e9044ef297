#pragma once

#include <cstdint>
#include <span>

namespace rondo::unicode {

// Tables of BERT's tokenizer, sorted by code point. Characters in no table are unchanged.

struct Range {
  char32_t first, last;
};

// Mapping of a character to one character, or up to three, when accents are removed and it is lower-cased.
struct Single {
  char32_t from, to;
};
struct Several {
  char32_t from, to[3];  // padded with 0
};

extern const std::span<const Range> removed;      // control characters, U+0000 and U+FFFD
extern const std::span<const Range> spaces;       // all white space
extern const std::span<const Range> accents;      // combining marks, removed together with accents
extern const std::span<const Range> punctuation;  // each is a separate word
extern const std::span<const Single> lowered_to_one;
extern const std::span<const Several> lowered_to_several;

// Tables of Unicode's canonical forms, without Hangul syllables, which are computed.

// Full canonical decomposition of a character: one to four characters, padded with 0.
struct Decomposition {
  char32_t from, to[4];
};

// Two characters that NFC combines.
struct Composition {
  char32_t first, second, to;
};

// Range of characters with the same combining class, not 0.
struct ClassRange {
  char32_t first, last;
  std::uint8_t combining_class;
};

extern const std::span<const Decomposition> decompositions;  // sorted by `from`
extern const std::span<const Composition> compositions;      // sorted by `first`, then `second`
extern const std::span<const ClassRange> combining_classes;  // sorted

// Character categories for byte-pair tokenizers, sorted by code point.

extern const std::span<const Range> letters;      // \p{L}
extern const std::span<const Range> numbers;      // \p{N}
extern const std::span<const Range> white_space;  // \s

}  // namespace rondo::unicode
