#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace rondo {

// Division of a text into words before pairs are merged.
struct WordCutting {
  enum class Style {
    none,     // the whole text is one word (Llama 2)
    gpt2,     // GPT-2's regular expression
    tiktoken  // the regular expression of GPT-4, Llama 3 and Qwen 2
  };
  Style style = Style::none;
  std::size_t digits = 0;  // tiktoken: maximum number of digits in one word
};

// Divides a text into words; the words are views that cover the whole text.
std::vector<std::string_view> cut_words(std::string_view text, const WordCutting& cutting);

// A byte-pair encoding tokenizer, read from a tokenizer.json of Hugging Face. Supports byte-level tokenizers
// (GPT-2, Llama 3, Qwen 2) and character tokenizers with byte fallback (Llama 2), and applies the NFC
// normalizer (Qwen 2). Gives the same tokens as the `tokenizers` package without surrounding special tokens.
// Thread-safe.
class BytePairs {
 public:
  // Throws DataError naming the file and the entry that is missing, invalid or unsupported.
  static BytePairs from_file(const std::string& path);

  // Returns the tokens of a text. Special tokens written in the text become those tokens.
  std::vector<std::int32_t> encode(std::string_view text) const;
  // Returns the text of tokens, in normalized form if the tokenizer normalizes. Throws UsageError for a
  // number that is not a token.
  std::string decode(const std::vector<std::int32_t>& tokens) const;
  std::int64_t size() const { return size_; }  // size of the vocabulary with special tokens

 private:
  friend class BytePairsReader;

  struct Merge {
    std::int32_t rank;
    std::int32_t token;
  };
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  using Index = std::unordered_map<std::string, std::int32_t, Hash, std::equal_to<>>;

  // Special tokens with their numbers, longest first.
  using Special = std::vector<std::pair<std::string, std::int32_t>>;

  template <class EncodePart>
  static void divide(std::string_view text, const Special& special, std::vector<std::int32_t>& tokens,
                     const EncodePart& encode_part);
  void encode_plain(std::string_view text, bool is_first, std::vector<std::int32_t>& tokens) const;
  void encode_word(std::string_view word, std::vector<std::int32_t>& tokens) const;
  std::vector<std::int32_t> symbols_of(std::string_view word) const;
  void merge(std::vector<std::int32_t>& symbols) const;

  WordCutting cutting_;
  bool byte_level_ = true;
  bool ignores_merges_ = false;  // a word that is a token is not split
  bool adds_space_ = false;      // byte-level: adds a space before a text without one
  enum class Mark {
    never,
    first,
    every
  } marks_ = Mark::never;  // character tokenizers: where the space mark is added before texts
  std::int32_t unknown_ = -1;
  std::int64_t size_ = 0;
  Index index_;                                      // tokens as written in the file
  std::unordered_map<std::uint64_t, Merge> merges_;  // key: the two tokens
  std::vector<std::string> texts_;                   // bytes of each token
  Special special_;
  bool normalizes_ = false;          // normalizes to NFC after `special_` are split off
  Special special_normalized_;       // special tokens that are searched after normalization
  std::vector<std::int32_t> bytes_;  // token of each byte; -1: none
};

}  // namespace rondo
