#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace rondo {

// Returns the words of a text like BERT: drops control characters and splits at white space, around every
// punctuation character and around every ideograph. With `lower_case` converts to lower case without accents.
// Drops bytes that are not UTF-8.
std::vector<std::u32string> bert_words(std::string_view text, bool lower_case);

// The WordPiece tokenizer of BERT (Devlin et al., 1810.04805). A word is replaced by the longest piece of the
// vocabulary that it begins with, then by the longest "##" piece of the rest, and so on. A word that cannot
// be divided, or of more than 100 characters, becomes [UNK]. [UNK], [CLS], [SEP], [PAD] and [MASK] in a text
// become those tokens. Gives the same tokens as `transformers`' BertTokenizer. Thread-safe.
class WordPiece {
 public:
  // Options of the division into words.
  struct Options {
    bool lower_case = true;  // false for "cased" vocabularies
  };

  // Reads a vocab.txt (one token per line, the first is token 0) or, if the name ends in .json, Hugging
  // Face's tokenizer.json with a WordPiece model. Throws DataError naming file and line for an empty or
  // repeated token, and naming a missing special token.
  static WordPiece from_file(const std::string& path, const Options& options);
  // `tokens` are ordered by number; `source` names them in errors. Throws DataError for a missing or repeated
  // token.
  WordPiece(const std::vector<std::string>& tokens, const Options& options,
            const std::string& source = "vocabulary");

  // Returns the tokens of a text, without [CLS] and [SEP].
  std::vector<std::int64_t> encode(std::string_view text) const;

  std::int64_t size() const { return static_cast<std::int64_t>(tokens_.size()); }  // number of tokens
  // Returns the text of token `id`, which must be in [0, size()).
  const std::string& token(std::int64_t id) const { return tokens_[static_cast<std::size_t>(id)]; }
  std::int64_t unknown() const { return unknown_; }      // [UNK]
  std::int64_t start() const { return start_; }          // [CLS]
  std::int64_t separator() const { return separator_; }  // [SEP]
  std::int64_t padding() const { return padding_; }      // [PAD]
  std::int64_t mask() const { return mask_; }            // [MASK]
  bool is_special(std::int64_t id) const;                // whether `id` is one of the five special tokens

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };

  std::int64_t find_special(const std::string& token, const std::string& source) const;
  void encode_plain(std::string_view text, std::vector<std::int64_t>& tokens) const;
  void encode_word(const std::u32string& word, std::vector<std::int64_t>& tokens) const;

  Options options_;
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, std::int64_t, Hash, std::equal_to<>> index_;
  std::size_t longest_piece_ = 0;  // in bytes
  std::int64_t unknown_ = 0, start_ = 0, separator_ = 0, padding_ = 0, mask_ = 0;
};

// A sample for BERT: [CLS] first [SEP], or [CLS] first [SEP] second [SEP], padded to a fixed length. The
// length is the same in every batch, so that no result depends on the other samples of a batch.
struct BertSample {
  std::int64_t* tokens;       // token numbers
  std::int64_t* token_types;  // 0 or 1
  std::int64_t* mask;         // 1 for tokens, 0 for padding
};
// Writes `length` values to each of the three arrays. Truncates texts that are too long at their ends: first
// the longer one, until both are equally long. `length` must be at least 3 (5 with a second text). An empty
// `second` means no second text.
void write_bert_sample(const WordPiece& tokenizer, const std::vector<std::int64_t>& first,
                       const std::vector<std::int64_t>& second, std::int64_t length,
                       const BertSample& sample);

}  // namespace rondo
