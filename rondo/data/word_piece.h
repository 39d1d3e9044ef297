#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace rondo {

// The words of a text as BERT has them: control characters dropped, cut at white space, around every
// punctuation character and every ideograph; with `lower_case` also small letters without accents. Bytes that
// are no UTF-8 are dropped.
std::vector<std::u32string> bert_words(std::string_view text, bool lower_case);

// WordPiece, BERT's tokenizer (Devlin et al., 1810.04805). A word becomes the longest piece of the vocabulary
// that it begins with, then the longest "##" piece that the rest begins with, and so on; a word that does not
// come out, or of more than 100 characters, is [UNK]. [UNK], [CLS], [SEP], [PAD] and [MASK], written so in a
// text, are those tokens. Gives what `transformers`' BertTokenizer gives. Any thread may use it.
class WordPiece {
 public:
  // How texts are cut.
  struct Options {
    bool lower_case = true;  // false for "cased" vocabularies
  };

  // Reads a vocab.txt (one token a line, the first is token 0) or, where the name ends in .json, Hugging
  // Face's tokenizer.json with a WordPiece model. Throws DataError naming file and line for a token that is
  // empty or there twice, and naming the special token that is missing.
  static WordPiece from_file(const std::string& path, const Options& options);
  // `tokens` by number; `source` names them in errors. Throws DataError for a token that is missing or there
  // twice.
  WordPiece(const std::vector<std::string>& tokens, const Options& options,
            const std::string& source = "vocabulary");

  // The tokens of a text, without [CLS] and [SEP].
  std::vector<std::int64_t> encode(std::string_view text) const;

  std::int64_t size() const { return static_cast<std::int64_t>(tokens_.size()); }  // number of tokens
  // The text of token `id`, which must be in [0, size()).
  const std::string& token(std::int64_t id) const { return tokens_[static_cast<std::size_t>(id)]; }
  std::int64_t unknown() const { return unknown_; }      // [UNK]
  std::int64_t start() const { return start_; }          // [CLS]
  std::int64_t separator() const { return separator_; }  // [SEP]
  std::int64_t padding() const { return padding_; }      // [PAD]
  std::int64_t mask() const { return mask_; }            // [MASK]
  bool is_special(std::int64_t id) const;                // whether it is one of these or [CLS], [SEP]

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
  std::size_t longest_piece_ = 0;  // bytes
  std::int64_t unknown_ = 0, start_ = 0, separator_ = 0, padding_ = 0, mask_ = 0;
};

// A sample for BERT: [CLS] first [SEP], or [CLS] first [SEP] second [SEP], filled up with padding to a fixed
// length. The length is the same in every batch so that nothing depends on which samples share one.
struct BertSample {
  std::int64_t* tokens;       // numbers of the vocabulary
  std::int64_t* token_types;  // 0 or 1
  std::int64_t* mask;         // 1 where a token is
};
// Writes `length` values to each of the three. Texts that are too long lose their ends: the longer one first,
// until both are equally long. `length` must be at least 3 (5 with a second text); an empty `second` is none.
void write_bert_sample(const WordPiece& tokenizer, const std::vector<std::int64_t>& first,
                       const std::vector<std::int64_t>& second, std::int64_t length,
                       const BertSample& sample);

}  // namespace rondo
