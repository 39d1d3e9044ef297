#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace rondo::unicode {

// Characters of UTF-8 text, as BERT's tokenizer sees them.

// What next() gives for bytes that are no UTF-8; each of them counts as one character.
inline constexpr char32_t kReplacement = 0xFFFD;

// The character at `position`, which moves on to the one after it. `position` must be below text.size().
char32_t next(std::string_view text, std::size_t& position);
// Where the first byte is that is no UTF-8.
std::optional<std::size_t> find_invalid(std::string_view text);
void append(std::string& text, char32_t character);

bool is_removed(char32_t character);
bool is_space(char32_t character);
bool is_punctuation(char32_t character);
// \p{L}, \p{N} and \s of regular expressions.
bool is_letter(char32_t character);
bool is_number(char32_t character);
bool is_white_space(char32_t character);
// An ideograph of Chinese, Japanese or Korean: a word by itself.
bool is_ideograph(char32_t character);
// Appends the small form without accents: nothing, one character or several.
void append_lowered(std::u32string& text, char32_t character);

// Returns UTF-8 text in Unicode's normalization form C: characters are decomposed, their marks ordered and
// composed again, as the `tokenizers` package does it. Bytes that are no UTF-8 stay where they are. Any
// thread.
std::string normalized_nfc(std::string_view text);

}  // namespace rondo::unicode
