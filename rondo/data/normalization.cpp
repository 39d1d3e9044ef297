#include "rondo/data/normalization.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "rondo/data/normalization_tables.h"
#include "rondo/data/unicode.h"

namespace rondo::unicode {
namespace {

// Syllables of Hangul by arithmetic (The Unicode Standard, section 3.12).
constexpr char32_t kSyllables = 0xAC00, kLeads = 0x1100, kVowels = 0x1161, kTrails = 0x11A7;
constexpr char32_t kLeadCount = 19, kVowelCount = 21, kTrailCount = 28;
constexpr char32_t kSyllableCount = kLeadCount * kVowelCount * kTrailCount;

constexpr char32_t kFirstComposed = 0xC0;  // the first character that has a decomposition
constexpr char32_t kFirstMark = 0x300;     // text below it is normalized as it is

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

// Appends the decomposition of a character.
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

// Returns the character that two become, or 0.
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

// Puts the marks behind each starter in the order of their classes.
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

// Composes ordered text in place: a character joins the last starter unless one between them blocks it.
void compose_marks(std::u32string& text) {
  constexpr std::size_t kNone = SIZE_MAX;
  std::size_t starter = kNone, kept = 0;
  int last_class = -1;  // of the character before, where it did not join the starter
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
  constexpr unsigned char kFirstMarkByte = 0xCC;  // the first byte of U+0300
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
