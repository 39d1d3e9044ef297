#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace rondo {

// How a text is cut into words before pairs are merged.
struct WordCutting {
  enum class Style {
    none,     // the text is one word (Llama 2)
    gpt2,     // GPT-2's regular expression
    tiktoken  // that of GPT-4, Llama 3 and Qwen 2
  };
  Style style = Style::none;
  std::size_t digits = 0;  // tiktoken: most digits of a number in one word
};

// Cuts a text; words are views of it, and together they are all of it.
std::vector<std::string_view> cut_words(std::string_view text, const WordCutting& cutting);

// Byte-pair encoding, as a tokenizer.json of Hugging Face describes it: byte-level ones (GPT-2, Llama 3, Qwen
// 2) and those of characters with single bytes for what the vocabulary lacks (Llama 2); the normalizer NFC
// (Qwen 2) is applied. Gives what the `tokenizers` package gives without special tokens around. Any thread
// may use it.
class BytePairs {
 public:
  // Throws DataError naming the file and the entry that is missing, cannot be, or is not known here.
  static BytePairs from_file(const std::string& path);

  // The tokens of a text. Special tokens that are written in it are those tokens.
  std::vector<std::int32_t> encode(std::string_view text) const;
  // The text of tokens, normalized where the tokenizer normalizes; throws UsageError for a number that is no
  // token.
  std::string decode(const std::vector<std::int32_t>& tokens) const;
  std::int64_t size() const { return size_; }  // of the vocabulary, special tokens included

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

  // Special tokens and their numbers, longest first.
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
  bool ignores_merges_ = false;  // a word that is a token is that token
  bool adds_space_ = false;      // byte-level: before a text that has none
  enum class Mark {
    never,
    first,
    every
  } marks_ = Mark::never;  // of characters: the mark for a space, before texts
  std::int32_t unknown_ = -1;
  std::int64_t size_ = 0;
  Index index_;                                      // of tokens as the file writes them
  std::unordered_map<std::uint64_t, Merge> merges_;  // by the two tokens
  std::vector<std::string> texts_;                   // bytes of each token
  Special special_;
  bool normalizes_ = false;          // to NFC, once `special_` are cut out
  Special special_normalized_;       // those that are looked for after it
  std::vector<std::int32_t> bytes_;  // the token of each byte; -1: none
};

}  // namespace rondo
