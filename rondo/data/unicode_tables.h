#pragma once

#include <cstdint>
#include <span>

namespace rondo::unicode {

// What BERT's tokenizer does with each character, sorted by code point. Characters in no table stay as they
// are.

struct Range {
  char32_t first, last;
};

// A character that becomes one, or up to three, when it loses its accents and then its capital form.
struct Single {
  char32_t from, to;
};
struct Several {
  char32_t from, to[3];  // filled up with 0
};

extern const std::span<const Range> removed;      // control characters, U+0000 and U+FFFD
extern const std::span<const Range> spaces;       // white space of any kind
extern const std::span<const Range> accents;      // combining marks, dropped where accents are
extern const std::span<const Range> punctuation;  // each is a word by itself
extern const std::span<const Single> lowered_to_one;
extern const std::span<const Several> lowered_to_several;

// Tables of Unicode's canonical forms, without the syllables of Hangul, which are computed.

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

// Categories of characters as byte-pair tokenizers cut texts by them, sorted by code point.

extern const std::span<const Range> letters;      // \p{L}
extern const std::span<const Range> numbers;      // \p{N}
extern const std::span<const Range> white_space;  // \s

}  // namespace rondo::unicode
