#include "rondo/data/word_piece.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/printable.h"
#include "rondo/base/text.h"
#include "rondo/data/data_files.h"
#include "rondo/data/unicode.h"

namespace rondo {
namespace {

constexpr std::size_t kLongestWord = 100;  // in characters

constexpr std::array<std::string_view, 5> special_tokens = {"[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"};

// Returns the special token at the beginning of `text`; empty if there is none.
std::string_view special_at(std::string_view text) {
  if (text.front() != '[') return {};
  for (const std::string_view token : special_tokens) {
    if (text.starts_with(token)) return token;
  }
  return {};
}

std::vector<std::string> read_lines(std::string_view text) {
  std::vector<std::string> lines = split(text, '\n');
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  for (std::string& line : lines) {
    if (line.ends_with('\r')) line.pop_back();
  }
  return lines;
}

// Reads the vocabulary of a tokenizer.json: {"model": {"type": "WordPiece", "vocab": {token: number}}}.
std::vector<std::string> read_tokenizer_json(std::string_view text, const std::string& path) {
  const std::string expected = str("'", path, "': expected the tokenizer.json of a BERT");
  const nlohmann::json document = parse_json_strict(text, expected);
  const nlohmann::json model =
      document.is_object() ? document.value("model", nlohmann::json()) : nlohmann::json();
  const auto vocabulary = model.is_object() ? model.find("vocab") : model.end();
  if (!model.is_object() || vocabulary == model.end() || !vocabulary->is_object() ||
      model.value("type", nlohmann::json("WordPiece")) != "WordPiece") {
    throw DataError(str(expected, ", with model.type WordPiece and model.vocab"));
  }
  std::vector<std::string> tokens(vocabulary->size());
  for (const auto& [token, number] : vocabulary->items()) {
    const auto last = static_cast<std::int64_t>(tokens.size()) - 1;
    if (!number.is_number_integer() || number.get<std::int64_t>() < 0 || number.get<std::int64_t>() > last) {
      throw DataError(str("'", path, "': token '", printable(token), "' has number ",
                          printable(number.dump()), ", expected 0 to ", last));
    }
    tokens[number.get<std::size_t>()] = token;
  }
  return tokens;
}

}  // namespace

std::vector<std::u32string> bert_words(std::string_view text, bool lower_case) {
  std::vector<std::u32string> words;
  std::u32string word, characters;
  const auto end_word = [&] {
    if (!word.empty()) words.push_back(std::move(word));
    word.clear();
  };
  for (std::size_t position = 0; position < text.size();) {
    const char32_t character = unicode::next(text, position);
    if (unicode::is_space(character)) {
      end_word();
      continue;
    }
    if (unicode::is_removed(character)) continue;
    const bool alone = unicode::is_ideograph(character);
    if (alone) end_word();
    characters.clear();
    if (lower_case) {
      unicode::append_lowered(characters, character);
    } else {
      characters.push_back(character);
    }
    for (const char32_t c : characters) {
      const bool separate = unicode::is_punctuation(c);
      if (separate) end_word();
      word.push_back(c);
      if (separate) end_word();
    }
    if (alone) end_word();
  }
  end_word();
  return words;
}

WordPiece WordPiece::from_file(const std::string& path, const Options& options) {
  const MappedInput file(path);
  return {path.ends_with(".json") ? read_tokenizer_json(file.text(), path) : read_lines(file.text()), options,
          path};
}

WordPiece::WordPiece(const std::vector<std::string>& tokens, const Options& options,
                     const std::string& source)
    : options_(options), tokens_(tokens) {
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const std::string& token = tokens_[i];
    if (token.empty()) throw DataError(str("'", source, "', line ", i + 1, ": empty, expected a token"));
    const auto [place, is_new] = index_.emplace(token, static_cast<std::int64_t>(i));
    if (!is_new) {
      throw DataError(str("'", source, "', line ", i + 1, ": token '", token, "' is there already, in line ",
                          place->second + 1));
    }
    longest_piece_ = std::max(longest_piece_, token.size());
  }
  unknown_ = find_special("[UNK]", source);
  start_ = find_special("[CLS]", source);
  separator_ = find_special("[SEP]", source);
  padding_ = find_special("[PAD]", source);
  mask_ = find_special("[MASK]", source);
}

std::int64_t WordPiece::find_special(const std::string& token, const std::string& source) const {
  const auto found = index_.find(token);
  if (found == index_.end()) {
    throw DataError(str("'", source, "' has ", tokens_.size(), " tokens, and ", token,
                        " is not one of them; expected the vocab.txt of a BERT"));
  }
  return found->second;
}

bool WordPiece::is_special(std::int64_t id) const {
  return id == unknown_ || id == start_ || id == separator_ || id == padding_ || id == mask_;
}

std::vector<std::int64_t> WordPiece::encode(std::string_view text) const {
  std::vector<std::int64_t> tokens;
  std::size_t plain = 0;  // start of the text after the last special token
  for (std::size_t position = 0; position < text.size();) {
    const std::string_view special = special_at(text.substr(position));
    if (special.empty()) {
      ++position;
      continue;
    }
    encode_plain(text.substr(plain, position - plain), tokens);
    tokens.push_back(index_.find(special)->second);
    position += special.size();
    plain = position;
  }
  encode_plain(text.substr(plain), tokens);
  return tokens;
}

void WordPiece::encode_plain(std::string_view text, std::vector<std::int64_t>& tokens) const {
  for (const std::u32string& word : bert_words(text, options_.lower_case)) encode_word(word, tokens);
}

void WordPiece::encode_word(const std::u32string& word, std::vector<std::int64_t>& tokens) const {
  if (word.size() > kLongestWord) {
    tokens.push_back(unknown_);
    return;
  }
  std::string bytes;
  std::vector<std::size_t> ends;  // end of each character
  for (const char32_t character : word) {
    unicode::append(bytes, character);
    ends.push_back(bytes.size());
  }
  const std::size_t before = tokens.size();
  std::string candidate;
  std::size_t begin = 0;
  for (std::size_t first = 0; first < ends.size();) {
    std::size_t last = ends.size();
    for (; last > first; --last) {
      if (ends[last - 1] - begin > longest_piece_) continue;
      candidate = first == 0 ? "" : "##";
      candidate.append(bytes, begin, ends[last - 1] - begin);
      const auto found = index_.find(candidate);
      if (found == index_.end()) continue;
      tokens.push_back(found->second);
      break;
    }
    if (last == first) {
      tokens.resize(before);
      tokens.push_back(unknown_);
      return;
    }
    begin = ends[last - 1];
    first = last;
  }
}

void write_bert_sample(const WordPiece& tokenizer, const std::vector<std::int64_t>& first,
                       const std::vector<std::int64_t>& second, std::int64_t length,
                       const BertSample& sample) {
  const auto room = static_cast<std::size_t>(length) - (second.empty() ? 2 : 3);
  std::size_t shorter = std::min(first.size(), second.size());
  std::size_t longer = std::max(first.size(), second.size());
  if (shorter + longer > room) {
    longer = std::max(shorter, room - std::min(room, shorter));
    if (shorter + longer > room) {
      shorter = room / 2;
      longer = shorter + room % 2;
    }
  }
  const bool first_is_longer = first.size() > second.size();
  const std::size_t first_size = first_is_longer ? longer : shorter;
  const std::size_t second_size = first_is_longer ? shorter : longer;

  std::fill_n(sample.tokens, length, tokenizer.padding());
  std::fill_n(sample.token_types, length, 0);
  std::fill_n(sample.mask, length, 0);
  std::int64_t* end = sample.tokens;
  *end++ = tokenizer.start();
  end = std::copy_n(first.begin(), first_size, end);
  *end++ = tokenizer.separator();
  const auto types_begin = end - sample.tokens;
  if (!second.empty()) {
    end = std::copy_n(second.begin(), second_size, end);
    *end++ = tokenizer.separator();
  }
  std::fill_n(sample.token_types + types_begin, end - sample.tokens - types_begin, 1);
  std::fill_n(sample.mask, end - sample.tokens, 1);
}

}  // namespace rondo
