#include "rondo/data/byte_pairs.h"

#include <algorithm>
#include <array>
#include <queue>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/data/unicode.h"

namespace rondo {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581, which represents a space

// A text as characters, for matching a tokenizer's regular expression from a position.
class CutText {
 public:
  explicit CutText(std::string_view text) : text_(text) {
    for (std::size_t position = 0; position < text.size();) {
      starts_.push_back(position);
      characters_.push_back(unicode::next(text, position));
    }
    starts_.push_back(text.size());
  }
  std::size_t size() const { return characters_.size(); }
  std::string_view part(std::size_t first, std::size_t last) const {
    return text_.substr(starts_[first], starts_[last] - starts_[first]);
  }

  bool is_letter(std::size_t i) const { return i < size() && unicode::is_letter(characters_[i]); }
  bool is_number(std::size_t i) const { return i < size() && unicode::is_number(characters_[i]); }
  bool is_space(std::size_t i) const { return i < size() && unicode::is_white_space(characters_[i]); }
  bool is_line_end(std::size_t i) const {
    return i < size() && (characters_[i] == '\n' || characters_[i] == '\r');
  }
  bool is_other(std::size_t i) const { return i < size() && !is_letter(i) && !is_number(i) && !is_space(i); }
  bool is(std::size_t i, char32_t character) const { return i < size() && characters_[i] == character; }

  // Returns the end of a contraction ("'s", "'re", ...) that begins at `i`; `i` if there is none.
  std::size_t end_of_contraction(std::size_t i, bool any_case) const {
    if (!is(i, '\'')) return i;
    for (const std::string_view ending : {"s", "t", "re", "ve", "m", "ll", "d"}) {
      bool fits = true;
      for (std::size_t k = 0; k < ending.size(); ++k) {
        const auto small = static_cast<char32_t>(ending[k]);
        fits = fits && (is(i + 1 + k, small) ||
                        (any_case && (is(i + 1 + k, small - 32) || (small == 's' && is(i + 1 + k, 0x17F)))));
      }
      if (fits) return i + 1 + ending.size();
    }
    return i;
  }

 private:
  std::string_view text_;
  std::u32string characters_;
  std::vector<std::size_t> starts_;
};

// Matches \s+(?!\S)|\s+ from a white space on: the last white space before a word belongs to the word.
std::size_t end_of_spaces(const CutText& text, std::size_t i) {
  std::size_t end = i;
  while (text.is_space(end)) ++end;
  return end < text.size() && end - i > 1 ? end - 1 : end;
}

std::size_t end_of_gpt2_word(const CutText& text, std::size_t i) {
  if (const std::size_t end = text.end_of_contraction(i, /*any_case=*/false); end > i) return end;
  const auto run = [&](auto&& fits) {
    std::size_t end = i + (text.is(i, ' ') && fits(i + 1) ? 1 : 0);
    while (fits(end)) ++end;
    return end;
  };
  for (const auto member : {&CutText::is_letter, &CutText::is_number, &CutText::is_other}) {
    const std::size_t end = run([&](std::size_t at) { return (text.*member)(at); });
    if (end > i) return end;
  }
  return end_of_spaces(text, i);
}

std::size_t end_of_tiktoken_word(const CutText& text, std::size_t i, std::size_t digits) {
  if (const std::size_t end = text.end_of_contraction(i, /*any_case=*/true); end > i) return end;
  const bool leads =
      !text.is_letter(i) && !text.is_number(i) && !text.is_line_end(i) && text.is_letter(i + 1);
  if (leads || text.is_letter(i)) {
    std::size_t end = i + 1;
    while (text.is_letter(end)) ++end;
    return end;
  }
  if (text.is_number(i)) {
    std::size_t end = i;
    while (text.is_number(end) && end - i < digits) ++end;
    return end;
  }
  std::size_t end = i + (text.is(i, ' ') && text.is_other(i + 1) ? 1 : 0);
  if (text.is_other(end)) {
    while (text.is_other(end)) ++end;
    while (text.is_line_end(end)) ++end;
    return end;
  }
  // \s*[\r\n]+: up to the last line end in the white space.
  std::size_t after_line = i;
  for (end = i; text.is_space(end); ++end) {
    if (text.is_line_end(end)) after_line = end + 1;
  }
  return after_line > i ? after_line : end_of_spaces(text, i);
}

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32) |
         static_cast<std::uint32_t>(right);
}

}  // namespace

std::vector<std::string_view> cut_words(std::string_view text, const WordCutting& cutting) {
  if (text.empty()) return {};
  if (cutting.style == WordCutting::Style::none) return {text};
  const CutText characters(text);
  std::vector<std::string_view> words;
  for (std::size_t i = 0; i < characters.size();) {
    const std::size_t end = cutting.style == WordCutting::Style::gpt2
                                ? end_of_gpt2_word(characters, i)
                                : end_of_tiktoken_word(characters, i, cutting.digits);
    words.push_back(characters.part(i, end));
    i = end;
  }
  return words;
}

// Appends the special tokens that occur in the text, and calls `encode_part(part, is_first)` for the parts
// between them.
template <class EncodePart>
void BytePairs::divide(std::string_view text, const Special& special, std::vector<std::int32_t>& tokens,
                       const EncodePart& encode_part) {
  std::size_t plain = 0;  // start of the text after the last special token
  for (std::size_t position = 0; position < text.size() && !special.empty();) {
    const auto found = std::find_if(special.begin(), special.end(), [&](const auto& entry) {
      return text.substr(position).starts_with(entry.first);
    });
    if (found == special.end()) {
      ++position;
      continue;
    }
    encode_part(text.substr(plain, position - plain), plain == 0);
    tokens.push_back(found->second);
    position += found->first.size();
    plain = position;
  }
  encode_part(text.substr(plain), plain == 0);
}

std::vector<std::int32_t> BytePairs::encode(std::string_view text) const {
  std::vector<std::int32_t> tokens;
  divide(text, special_, tokens, [&](std::string_view part, bool is_first) {
    if (!normalizes_) return encode_plain(part, is_first, tokens);
    divide(unicode::normalized_nfc(part), special_normalized_, tokens,
           [&](std::string_view inner, bool inner_is_first) {
             encode_plain(inner, is_first && inner_is_first, tokens);
           });
  });
  return tokens;
}

void BytePairs::encode_plain(std::string_view text, bool is_first, std::vector<std::int32_t>& tokens) const {
  if (text.empty()) return;
  std::string changed;
  if (byte_level_) {
    if (adds_space_ && text.front() != ' ') changed = " " + std::string(text);
  } else {
    const bool marked = marks_ == Mark::every || (marks_ == Mark::first && is_first);
    if (marked) changed = kSpaceMark;
    for (const char byte : text) byte == ' ' ? changed.append(kSpaceMark) : changed.append(1, byte);
    // Metaspace does not add a second mark to a text that begins with a space.
    if (marks_ == Mark::first && marked && text.starts_with(' ')) changed.erase(0, kSpaceMark.size());
  }
  for (const std::string_view word : cut_words(changed.empty() ? text : changed, cutting_))
    encode_word(word, tokens);
}

std::vector<std::int32_t> BytePairs::symbols_of(std::string_view word) const {
  std::vector<std::int32_t> symbols;
  if (byte_level_) {
    for (const char byte : word) symbols.push_back(bytes_[static_cast<unsigned char>(byte)]);
    return symbols;
  }
  for (std::size_t position = 0; position < word.size();) {
    const std::size_t begin = position;
    unicode::next(word, position);
    const std::string_view character = word.substr(begin, position - begin);
    if (const auto found = index_.find(character); found != index_.end()) {
      symbols.push_back(found->second);
      continue;
    }
    const bool has_bytes = std::all_of(character.begin(), character.end(), [&](char byte) {
      return bytes_[static_cast<unsigned char>(byte)] >= 0;
    });
    if (has_bytes) {
      for (const char byte : character) symbols.push_back(bytes_[static_cast<unsigned char>(byte)]);
    } else if (symbols.empty() || symbols.back() != unknown_) {
      symbols.push_back(unknown_);
    }
  }
  return symbols;
}

void BytePairs::encode_word(std::string_view word, std::vector<std::int32_t>& tokens) const {
  std::vector<std::int32_t> symbols = symbols_of(word);
  if (ignores_merges_) {
    std::string written;
    for (const std::int32_t symbol : symbols) {
      for (const auto& byte : texts_[static_cast<std::size_t>(symbol)]) written += byte;
    }
    // `texts_` holds bytes, like the index of byte-level tokens.
    if (const auto found = index_.find(written); found != index_.end()) {
      tokens.push_back(found->second);
      return;
    }
  }
  merge(symbols);
  tokens.insert(tokens.end(), symbols.begin(), symbols.end());
}

// Merges the pair with the lowest rank first; of equal ranks, the leftmost. Takes O(n log n) in the length of
// the word, which may be the whole text.
void BytePairs::merge(std::vector<std::int32_t>& symbols) const {
  const auto count = symbols.size();
  if (count < 2) return;
  struct Candidate {
    std::int32_t rank;
    std::size_t left, right;
    std::int32_t left_symbol, right_symbol, token;
    bool operator<(const Candidate& other) const {  // the top of the queue is its largest element
      return rank != other.rank ? rank > other.rank : left > other.left;
    }
  };
  constexpr std::int32_t kGone = -2;
  std::vector<std::size_t> before(count), after(count);
  for (std::size_t i = 0; i < count; ++i) {
    before[i] = i - 1;
    after[i] = i + 1;
  }
  std::priority_queue<Candidate> queue;
  const auto propose = [&](std::size_t left, std::size_t right) {
    if (left >= count || right >= count) return;
    const auto found = merges_.find(pair_key(symbols[left], symbols[right]));
    if (found == merges_.end()) return;
    queue.push({found->second.rank, left, right, symbols[left], symbols[right], found->second.token});
  };
  for (std::size_t i = 0; i + 1 < count; ++i) propose(i, i + 1);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    if (symbols[best.left] != best.left_symbol || after[best.left] != best.right ||
        symbols[best.right] != best.right_symbol)
      continue;
    symbols[best.left] = best.token;
    symbols[best.right] = kGone;
    after[best.left] = after[best.right];
    if (after[best.left] < count) before[after[best.left]] = best.left;
    propose(before[best.left], best.left);
    propose(best.left, after[best.left]);
  }
  std::erase(symbols, kGone);
}

std::string BytePairs::decode(const std::vector<std::int32_t>& tokens) const {
  std::string text;
  for (const std::int32_t token : tokens) {
    if (token < 0 || token >= size_) throw UsageError(str("token ", token, ", expected 0 to ", size_ - 1));
    text += texts_[static_cast<std::size_t>(token)];
  }
  if (byte_level_) return text;
  std::string plain;
  for (std::size_t position = 0; position < text.size();) {
    const bool mark = text.compare(position, kSpaceMark.size(), kSpaceMark) == 0;
    plain += mark ? ' ' : text[position];
    position += mark ? kSpaceMark.size() : 1;
  }
  return marks_ != Mark::never && plain.starts_with(' ') ? plain.substr(1) : plain;
}

}  // namespace rondo
