#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rondo/data/dataset.h"
#include "rondo/data/labelled_text_options.h"
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

}  // namespace rondo
