#include "rondo/data/unicode.h"

#include <algorithm>
#include <array>
#include <span>

#include "rondo/base/printable.h"
#include "rondo/data/category_tables.h"
#include "rondo/data/unicode_tables.h"

namespace rondo::unicode {
namespace {

bool contains(std::span<const Range> ranges, char32_t character) {
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), character,
                                      [](char32_t c, const Range& range) { return c < range.first; });
  return after != ranges.begin() && character <= std::prev(after)->last;
}

template <class Entry>
const Entry* find(std::span<const Entry> entries, char32_t character) {
  const auto found = std::lower_bound(entries.begin(), entries.end(), character,
                                      [](const Entry& entry, char32_t c) { return entry.from < c; });
  return found != entries.end() && found->from == character ? &*found : nullptr;
}

}  // namespace

char32_t next(std::string_view text, std::size_t& position) {
  const std::size_t length = utf8_length(text.substr(position));
  if (length == 0) {
    ++position;
    return kReplacement;
  }
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[position + i]); };
  constexpr std::array<unsigned char, 5> value_bits = {0, 0x7F, 0x1F, 0x0F, 0x07};
  char32_t character = byte(0) & value_bits[length];
  for (std::size_t i = 1; i < length; ++i) character = character << 6 | (byte(i) & 0x3FU);
  position += length;
  return character;
}

std::optional<std::size_t> find_invalid(std::string_view text) {
  for (std::size_t position = 0; position < text.size();) {
    const std::size_t length = utf8_length(text.substr(position));
    if (length == 0) return position;
    position += length;
  }
  return std::nullopt;
}

void append(std::string& text, char32_t character) {
  const auto continuation = [&](int shift) {
    text.push_back(static_cast<char>(0x80 | (character >> shift & 0x3F)));
  };
  if (character < 0x80) {
    text.push_back(static_cast<char>(character));
  } else if (character < 0x800) {
    text.push_back(static_cast<char>(0xC0 | character >> 6));
    continuation(0);
  } else if (character < 0x10000) {
    text.push_back(static_cast<char>(0xE0 | character >> 12));
    continuation(6);
    continuation(0);
  } else {
    text.push_back(static_cast<char>(0xF0 | character >> 18));
    continuation(12);
    continuation(6);
    continuation(0);
  }
}

bool is_removed(char32_t character) { return contains(removed, character); }
bool is_space(char32_t character) { return contains(spaces, character); }
bool is_punctuation(char32_t character) { return contains(punctuation, character); }
bool is_letter(char32_t character) { return contains(letters, character); }
bool is_number(char32_t character) { return contains(numbers, character); }
bool is_white_space(char32_t character) { return contains(white_space, character); }

bool is_ideograph(char32_t character) {
  // The blocks that the original names; Hiragana, Katakana and Hangul are written with spaces or cut further.
  static constexpr std::array<Range, 8> blocks = {{{0x3400, 0x4DBF},
                                                   {0x4E00, 0x9FFF},
                                                   {0xF900, 0xFAFF},
                                                   {0x20000, 0x2A6DF},
                                                   {0x2A700, 0x2B73F},
                                                   {0x2B740, 0x2B81F},
                                                   {0x2B820, 0x2CEAF},
                                                   {0x2F800, 0x2FA1F}}};
  return character >= blocks.front().first && contains(blocks, character);
}

void append_lowered(std::u32string& text, char32_t character) {
  if (character < 0x80) {
    text.push_back(character >= U'A' && character <= U'Z' ? character + 32 : character);
    return;
  }
  // Syllables of Hangul come apart into their letters (The Unicode Standard, section 3.12).
  if (character >= 0xAC00 && character <= 0xD7A3) {
    const char32_t syllable = character - 0xAC00;
    text.push_back(0x1100 + syllable / 588);
    text.push_back(0x1161 + syllable % 588 / 28);
    if (syllable % 28 != 0) text.push_back(0x11A7 + syllable % 28);
    return;
  }
  if (contains(accents, character)) return;
  if (const Single* single = find(lowered_to_one, character)) {
    text.push_back(single->to);
  } else if (const Several* several = find(lowered_to_several, character)) {
    for (const char32_t to : several->to) {
      if (to != 0) text.push_back(to);
    }
  } else {
    text.push_back(character);
  }
}

}  // namespace rondo::unicode
