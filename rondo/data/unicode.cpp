#include "rondo/data/unicode.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <span>
#include <utility>

#include "rondo/base/printable.h"
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
  // The blocks of the original implementation; Hiragana, Katakana and Hangul are written with spaces or
  // divided otherwise.
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
  // Hangul syllables decompose into letters (The Unicode Standard, section 3.12).
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

namespace {

// Arithmetic of Hangul syllables (The Unicode Standard, section 3.12).
constexpr char32_t kSyllables = 0xAC00, kLeads = 0x1100, kVowels = 0x1161, kTrails = 0x11A7;
constexpr char32_t kLeadCount = 19, kVowelCount = 21, kTrailCount = 28;
constexpr char32_t kSyllableCount = kLeadCount * kVowelCount * kTrailCount;

constexpr char32_t kFirstComposed = 0xC0;  // the first character with a decomposition
constexpr char32_t kFirstMark = 0x300;     // text below it is already normalized

bool is_within(char32_t character, char32_t first, char32_t count) {
  return character >= first && character - first < count;
}

std::uint8_t combining_class(char32_t character) {
  if (character < kFirstMark) return 0;
  const auto after = std::upper_bound(combining_classes.begin(), combining_classes.end(), character,
                                      [](char32_t c, const ClassRange& range) { return c < range.first; });
  if (after == combining_classes.begin() || character > std::prev(after)->last) return 0;
  return std::prev(after)->combining_class;
}

// Appends the canonical decomposition of a character.
void decompose(std::u32string& text, char32_t character) {
  if (is_within(character, kSyllables, kSyllableCount)) {
    const char32_t syllable = character - kSyllables;
    text.push_back(kLeads + syllable / (kVowelCount * kTrailCount));
    text.push_back(kVowels + syllable % (kVowelCount * kTrailCount) / kTrailCount);
    if (syllable % kTrailCount != 0) text.push_back(kTrails + syllable % kTrailCount);
    return;
  }
  const auto found = std::lower_bound(decompositions.begin(), decompositions.end(), character,
                                      [](const Decomposition& entry, char32_t c) { return entry.from < c; });
  if (found == decompositions.end() || found->from != character) {
    text.push_back(character);
    return;
  }
  for (const char32_t part : found->to) {
    if (part != 0) text.push_back(part);
  }
}

// Returns the composition of two characters, or 0.
char32_t compose(char32_t first, char32_t second) {
  if (is_within(first, kLeads, kLeadCount) && is_within(second, kVowels, kVowelCount))
    return kSyllables + ((first - kLeads) * kVowelCount + (second - kVowels)) * kTrailCount;
  if (is_within(first, kSyllables, kSyllableCount) && (first - kSyllables) % kTrailCount == 0 &&
      is_within(second, kTrails + 1, kTrailCount - 1))
    return first + (second - kTrails);
  const auto found = std::lower_bound(
      compositions.begin(), compositions.end(), std::pair(first, second),
      [](const Composition& entry, const auto& pair) { return std::pair(entry.first, entry.second) < pair; });
  const bool fits = found != compositions.end() && found->first == first && found->second == second;
  return fits ? found->to : 0;
}

// Sorts the marks after each starter by combining class.
void order_marks(std::u32string& text) {
  for (auto begin = text.begin(); begin != text.end();) {
    if (combining_class(*begin) == 0) {
      ++begin;
      continue;
    }
    const auto end = std::find_if(begin, text.end(), [](char32_t c) { return combining_class(c) == 0; });
    std::stable_sort(begin, end,
                     [](char32_t a, char32_t b) { return combining_class(a) < combining_class(b); });
    begin = end;
  }
}

// Composes ordered text in place: a character combines with the last starter unless a character between them
// blocks it.
void compose_marks(std::u32string& text) {
  constexpr std::size_t kNone = SIZE_MAX;
  std::size_t starter = kNone, kept = 0;
  int last_class = -1;  // class of the previous character if it did not combine with the starter
  for (const char32_t character : text) {
    const int own_class = combining_class(character);
    if (starter != kNone && last_class < own_class) {
      if (const char32_t joined = compose(text[starter], character); joined != 0) {
        text[starter] = joined;
        continue;
      }
    }
    if (own_class == 0) {
      starter = kept;
      last_class = -1;
    } else {
      last_class = own_class;
    }
    text[kept++] = character;
  }
  text.resize(kept);
}

void append_normalized(std::string& result, std::string_view valid) {
  std::u32string characters;
  for (std::size_t position = 0; position < valid.size();) {
    const char32_t character = next(valid, position);
    if (character < kFirstComposed) {
      characters.push_back(character);
    } else {
      decompose(characters, character);
    }
  }
  order_marks(characters);
  compose_marks(characters);
  for (const char32_t character : characters) append(result, character);
}

}  // namespace

std::string normalized_nfc(std::string_view text) {
  constexpr unsigned char kFirstMarkByte = 0xCC;  // first byte of U+0300
  const bool is_plain = std::all_of(
      text.begin(), text.end(), [](char byte) { return static_cast<unsigned char>(byte) < kFirstMarkByte; });
  if (is_plain) return std::string(text);
  std::string result;
  while (!text.empty()) {
    const std::size_t valid = find_invalid(text).value_or(text.size());
    append_normalized(result, text.substr(0, valid));
    text.remove_prefix(valid);
    if (text.empty()) break;
    result.push_back(text.front());
    text.remove_prefix(1);
  }
  return result;
}

}  // namespace rondo::unicode
