#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace rondo::unicode {

// Characters of UTF-8 text as BERT's tokenizer classifies them.

// Result of next() for bytes that are not UTF-8; each such byte counts as one character.
inline constexpr char32_t kReplacement = 0xFFFD;

// Returns the character at `position` and advances it. `position` must be below text.size().
char32_t next(std::string_view text, std::size_t& position);
// Returns the position of the first byte that is not UTF-8; empty if there is none.
std::optional<std::size_t> find_invalid(std::string_view text);
void append(std::string& text, char32_t character);

bool is_removed(char32_t character);
bool is_space(char32_t character);
bool is_punctuation(char32_t character);
// Match \p{L}, \p{N} and \s of regular expressions.
bool is_letter(char32_t character);
bool is_number(char32_t character);
bool is_white_space(char32_t character);
// Returns whether the character is a Chinese, Japanese or Korean ideograph, which forms a word by itself.
bool is_ideograph(char32_t character);
// Appends the lower-case form without accents: no, one or several characters.
void append_lowered(std::u32string& text, char32_t character);

// Returns UTF-8 text in Unicode's normalization form C: decomposes characters, orders their marks and
// composes them again, like the `tokenizers` package. Keeps bytes that are not UTF-8. Thread-safe.
std::string normalized_nfc(std::string_view text);

}  // namespace rondo::unicode
