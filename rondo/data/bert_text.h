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
    std::string_view second;  // empty with one text per line
  };
  std::vector<Line> lines;  // views of the text
  std::vector<std::string>
      class_names;  // distinct labels: in numeric order if all are whole numbers, else in text order
};

// Parses tab-separated lines of a label and one or two texts, in UTF-8 without quoting. `label_column` is the
// number of the label column (from 0; empty means 0) or its name in a first line with column names. Otherwise
// the first line is a header if each of its fields is one word and no number, and its label occurs in no
// other line. In addition, either all other labels are numbers or each of them occurs in several lines. Skips
// empty lines. Throws DataError naming `path`, the line and the expected content. With class names in
// `known`, uses those, and any other label is an error.
LabelledLines parse_labelled_text(std::string_view text, const std::string& path,
                                  const std::string& label_column, const KnownData& known = {});

// A data set of texts with classes for BERT. Input int64 [samples, 3, context] (tokens, token types, mask:
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

// A data set of text with hidden tokens, for masked language modelling as in BERT's training (Devlin et al.,
// 2019). In each sample, 15 % of the tokens (at least one) are to be predicted. Of these, 80 % become [MASK],
// 10 % become a random token of the vocabulary, and 10 % stay. The choice is a function of (seed, epoch,
// sample): it changes with the epoch and does not depend on ranks, batch size or resuming. Input int64
// [samples, 3, context] (write_bert_sample), target int64 [samples, context]: the original token, or -100
// where no prediction is requested.
class MaskedText final : public Dataset, public DataFiles {
 public:
  // Cuts `tokens` into samples of context - 2 tokens, enclosed in [CLS] and [SEP]; the last sample may be
  // shorter. `files` holds the index of the first token of each file; empty: the tokens come from no files.
  MaskedText(std::vector<std::int32_t> tokens, std::shared_ptr<const WordPiece> tokenizer,
             std::int64_t context, std::uint64_t seed, std::string source,
             std::vector<std::int64_t> files = {});
  std::int64_t size() const override;
  // Returns the samples of epoch 0.
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
