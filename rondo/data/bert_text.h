#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rondo/data/data_files.h"
#include "rondo/data/data_kinds.h"
#include "rondo/data/dataset.h"
#include "rondo/data/open.h"
#include "rondo/data/word_piece.h"

namespace rondo {

// Lines of a file of labelled texts.
struct LabelledLines {
  struct Line {
    std::string_view label;
    std::string_view first;
    std::string_view second;  // empty with one text a line
  };
  std::vector<Line> lines;  // views of the text
  std::vector<std::string>
      class_names;  // the distinct labels: by number where all are whole numbers, else by text
};

// Reads tab-separated lines of a label and one or two texts, in UTF-8 and without quoting. `label_column` is
// the number of the label's column (from 0, and what an empty text means), or its name in a first line that
// names the columns. Without a name the first line is a header when each field is one word, no other line has
// its label, and every other label has several lines or is a number that this one is not. Empty lines are
// passed over. Throws DataError naming `path`, the line and what was expected there. Classes that are `known`
// are taken as they are, and another label is an error.
LabelledLines parse_labelled_text(std::string_view text, const std::string& path,
                                  const std::string& label_column, const KnownData& known = {});

// Texts and their classes as samples for BERT: input int64 [samples, 3, context] (tokens, token types, mask:
// write_bert_sample), target the class.
class LabelledText final : public Dataset {
 public:
  LabelledText(const LabelledLines& lines, std::shared_ptr<const WordPiece> tokenizer, std::int64_t context,
               std::string source);
  std::int64_t size() const override { return static_cast<std::int64_t>(samples_.size()); }
  Batch get(std::span<const std::int64_t> indices) const override;
  const DatasetInfo& info() const override { return info_; }

 private:
  struct Sample {
    std::vector<std::int64_t> first, second;
    std::int64_t label;
  };
  std::shared_ptr<const WordPiece> tokenizer_;
  std::vector<Sample> samples_;
  DatasetInfo info_;
};

// Text with some tokens hidden, for masked language modelling as BERT was trained (Devlin et al., 2019): of a
// sample's tokens 15 %, at least one, are to be predicted; of these 80 % become [MASK], 10 % a random token
// of the vocabulary, and 10 % stay. Which and how is a function of (seed, epoch, sample), so another epoch
// hides others, and ranks, batch sizes and resumed runs make no difference. Input int64 [samples, 3, context]
// (write_bert_sample), target int64 [samples, context]: the token that was there, -100 where nothing is
// asked.
class MaskedText final : public Dataset, public DataFiles {
 public:
  // `tokens` are cut into samples of context - 2, with [CLS] and [SEP] around; the last may be shorter.
  // `files` has the first token of each file; empty: they come from none.
  MaskedText(std::vector<std::int32_t> tokens, std::shared_ptr<const WordPiece> tokenizer,
             std::int64_t context, std::uint64_t seed, std::string source,
             std::vector<std::int64_t> files = {});
  std::int64_t size() const override;
  // As in epoch 0.
  Batch get(std::span<const std::int64_t> indices) const override { return get_at_epoch(indices, 0); }
  Batch get_at_epoch(std::span<const std::int64_t> indices, std::int64_t epoch) const override;
  const DatasetInfo& info() const override { return info_; }
  std::vector<std::int64_t> file_starts() const override;

 private:
  void hide(std::int64_t index, std::int64_t epoch, std::int64_t* tokens, std::int64_t* target,
            std::int64_t count) const;

  std::vector<std::int32_t> tokens_;
  std::shared_ptr<const WordPiece> tokenizer_;
  std::uint64_t seed_;
  DatasetInfo info_;
  std::vector<std::int64_t> files_;
};

}  // namespace rondo
