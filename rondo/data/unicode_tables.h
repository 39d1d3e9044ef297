#pragma once

#include <cstdint>
#include <span>

// What BERT's tokenizer does with each character, sorted by code point. Characters in no table stay as they
// are.
namespace rondo::unicode {

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

}  // namespace rondo::unicode
