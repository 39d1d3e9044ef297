#include "rondo/data/bert_text.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "rondo/base/arithmetic.h"
#include "rondo/base/error.h"
#include "rondo/base/random.h"
#include "rondo/base/text.h"
#include "rondo/data/data_files.h"
#include "rondo/data/subset.h"
#include "rondo/data/text.h"
#include "rondo/data/unicode.h"

namespace rondo {
namespace {

bool is_whole_number(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  return !text.empty() && text.size() <= 18 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::vector<std::string> sorted_classes(const std::vector<LabelledLines::Line>& lines) {
  std::set<std::string> distinct;
  for (const auto& line : lines) distinct.emplace(line.label);
  std::vector<std::string> names(distinct.begin(), distinct.end());
  if (std::all_of(names.begin(), names.end(), is_whole_number)) {
    std::sort(names.begin(), names.end(),
              [](const std::string& a, const std::string& b) { return std::stoll(a) < std::stoll(b); });
  }
  return names;
}

// A reader that splits text into lines and lines into columns.
class Lines {
 public:
  Lines(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  // Reads the columns of the next non-empty line. Returns false at the end.
  bool next(std::vector<std::string_view>& columns) {
    while (!text_.empty()) {
      ++number_;
      std::string_view line = text_.substr(0, text_.find('\n'));
      text_.remove_prefix(std::min(text_.size(), line.size() + 1));
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (line.empty()) continue;
      if (const auto bad = unicode::find_invalid(line)) {
        fail(str("byte ", *bad + 1, " of the line is not UTF-8; convert the file: iconv -t UTF-8"));
      }
      columns.clear();
      while (true) {
        const std::size_t tab = line.find('\t');
        columns.push_back(line.substr(0, tab));
        if (tab == std::string_view::npos) break;
        line.remove_prefix(tab + 1);
      }
      return true;
    }
    return false;
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw DataError(str("'", path_, "', line ", number_, ": ", what));
  }
  std::int64_t number() const { return number_; }  // line number, from 1

 private:
  std::string_view text_;
  const std::string& path_;
  std::int64_t number_ = 0;
};

std::size_t find_label_column(const std::string& wanted, const std::vector<std::string_view>& columns,
                              const std::string& path) {
  if (wanted.empty()) return 0;
  if (is_whole_number(wanted)) {
    const long long number = std::stoll(wanted);
    if (number >= 0 && number < static_cast<long long>(columns.size()))
      return static_cast<std::size_t>(number);
    throw UsageError(str("label column ", wanted, " of '", path, "', whose lines have ", columns.size(),
                         " columns, numbered from 0"));
  }
  const auto found = std::find(columns.begin(), columns.end(), wanted);
  if (found != columns.end()) return static_cast<std::size_t>(found - columns.begin());
  throw UsageError(str("no column '", wanted, "' in the first line of '", path, "'; its columns are ",
                       join(columns, ", ")));
}

// Returns whether a field may be a column name: one word that is not a number.
bool may_be_name(std::string_view field) {
  return !field.empty() && !is_whole_number(field) && field.find(' ') == std::string_view::npos;
}

bool may_be_names(const std::vector<std::string_view>& columns) {
  return std::all_of(columns.begin(), columns.end(), may_be_name);
}

// Returns whether the first line differs from the others: its label occurs in no other line, and either all
// others are numbers and it is not, or every other label occurs more than once.
bool is_unlike_others(const std::vector<LabelledLines::Line>& lines) {
  const std::string_view own = lines.front().label;
  std::map<std::string_view, std::int64_t> counts;
  for (std::size_t i = 1; i < lines.size(); ++i) ++counts[lines[i].label];
  if (counts.empty() || counts.count(own) > 0) return false;
  const bool all_numbers =
      std::all_of(counts.begin(), counts.end(), [](const auto& each) { return is_whole_number(each.first); });
  if (all_numbers) return !is_whole_number(own);
  return std::all_of(counts.begin(), counts.end(), [](const auto& each) { return each.second > 1; });
}

// Returns whether the first of `lines`, number `number` in the file, contains column names. Throws DataError
// if it is ambiguous.
bool has_header(const std::vector<LabelledLines::Line>& lines, bool may_be_header, std::int64_t number,
                const std::string& path) {
  if (lines.empty() || !is_unlike_others(lines)) return false;
  if (may_be_header) return true;
  const std::string_view label = lines.front().label;
  const bool all_numbers = std::all_of(lines.begin() + 1, lines.end(), [](const LabelledLines::Line& line) {
    return is_whole_number(line.label);
  });
  if (!all_numbers) return false;
  throw DataError(str("'", path, "', line ", number, ": the label '", label,
                      "' is no number, and all others are. If the line names the columns, give the label "
                      "column by its name (--label-column ",
                      label, "); else correct the label"));
}

OpenedData open_labelled_text(const std::string& path, const DataOptions& options,
                              const std::string& label_column) {
  check_validation_fraction(options.validation_fraction);
  const auto tokenizer = open_tokenizer(options);
  const MappedInput file(path);
  const LabelledLines lines = parse_labelled_text(file.text(), path, label_column, options.known);
  const auto all = std::make_shared<LabelledText>(lines, tokenizer, options.context, path);
  SplitIndices split = split_indices(all->size(), options.validation_fraction, options.split_seed);
  OpenedData opened{.kind = "labelled_text",
                    .train = std::make_shared<Subset>(all, std::move(split.train)),
                    .validation = {}};
  if (!split.validation.empty())
    opened.validation = std::make_shared<Subset>(all, std::move(split.validation));
  return opened;
}

}  // namespace

LabelledLines parse_labelled_text(std::string_view text, const std::string& path,
                                  const std::string& label_column, const KnownData& known) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // a byte order mark
  LabelledLines result;
  Lines reader(text, path);
  std::vector<std::string_view> columns;
  std::size_t label = 0, width = 0;
  bool may_be_header = false;
  std::int64_t first_line = 0;
  while (reader.next(columns)) {
    if (width == 0) {
      width = columns.size();
      if (width == 1) reader.fail("no tab, expected a label, a tab and a text");
      if (width > 3) reader.fail(str(width, " columns, expected a label and one or two texts"));
      label = find_label_column(label_column, columns, path);
      // the line contained the column names
      if (!label_column.empty() && !is_whole_number(label_column)) continue;
      may_be_header = may_be_names(columns);
      first_line = reader.number();
    }
    if (columns.size() != width) {
      reader.fail(str(columns.size() == 1 ? "no tab" : str(columns.size(), " columns"), ", expected ", width,
                      " columns as in the first line"));
    }
    if (columns[label].empty()) reader.fail("the label is empty");
    const std::vector<std::string>& names = known.class_names;
    if (!names.empty() && std::find(names.begin(), names.end(), columns[label]) == names.end()) {
      if (may_be_header && reader.number() == first_line) continue;
      reader.fail(unknown_class(known, columns[label]));
    }
    LabelledLines::Line line{.label = columns[label], .first = columns[label == 0 ? 1 : 0], .second = {}};
    if (width == 3) line.second = columns[label == 2 ? 1 : 2];
    result.lines.push_back(line);
  }
  if (known.class_names.empty() && has_header(result.lines, may_be_header, first_line, path))
    result.lines.erase(result.lines.begin());
  if (result.lines.empty()) throw DataError(str("'", path, "' has no line with a label and a text"));
  result.class_names = known.class_names.empty() ? sorted_classes(result.lines) : known.class_names;
  if (result.class_names.size() < 2) {
    throw DataError(str("'", path, "': every line has the label '", result.class_names.front(),
                        "', expected two or more; is the label in another column (--label-column)?"));
  }
  return result;
}

LabelledText::LabelledText(const LabelledLines& lines, std::shared_ptr<const WordPiece> tokenizer,
                           std::int64_t context, std::string source)
    : tokenizer_(std::move(tokenizer)) {
  if (context < 5) throw UsageError(str("the context is ", context, " tokens, expected at least 5"));
  std::map<std::string, std::int64_t, std::less<>> classes;
  for (const std::string& name : lines.class_names)
    classes.emplace(name, static_cast<std::int64_t>(classes.size()));
  samples_.reserve(lines.lines.size());
  for (const LabelledLines::Line& line : lines.lines) {
    samples_.push_back(
        {tokenizer_->encode(line.first), tokenizer_->encode(line.second), classes.find(line.label)->second});
  }
  info_ = {.kind = "labelled_text",
           .source = std::move(source),
           .input_shape = {3, context},
           .classes = static_cast<std::int64_t>(classes.size()),
           .class_names = lines.class_names,
           .vocabulary = tokenizer_->size()};
}

Batch LabelledText::get(std::span<const std::int64_t> indices) const {
  check_indices(indices, size());
  const auto samples = static_cast<std::int64_t>(indices.size());
  const std::int64_t length = info_.input_shape[1];
  Batch batch{.inputs = {at::empty({samples, 3, length}, at::kLong)},
              .targets = {at::empty({samples}, at::kLong)},
              .samples = samples};
  auto* input = batch.inputs[0].mutable_data_ptr<std::int64_t>();
  auto* target = batch.targets[0].mutable_data_ptr<std::int64_t>();
  for (const std::int64_t index : indices) {
    const Sample& sample = samples_[static_cast<std::size_t>(index)];
    write_bert_sample(*tokenizer_, sample.first, sample.second, length,
                      {input, input + length, input + 2 * length});
    input += 3 * length;
    *target++ = sample.label;
  }
  return batch;
}

// Only the user can tell this format from a table of numbers, so it is never detected.
bool LabelledTextKind::detect(const std::string& /*name*/, const std::string& /*path*/) { return false; }

OpenedData LabelledTextKind::open(const std::string& /*name*/, const std::string& path,
                                  const DataOptions& options, const Options& own) {
  return open_labelled_text(path, options, own.label_column);
}

namespace {

constexpr double kHiddenPart = 0.15;
constexpr std::int64_t kNothingAsked = -100;

// Tokenizes all text below `path` line by line, so that memory holds tokens instead of words. `files`
// receives the index of each file's first token.
std::vector<std::int32_t> read_tokens(const std::string& path, const std::vector<std::string>& extensions,
                                      const WordPiece& tokenizer, std::vector<std::int64_t>& files) {
  std::vector<std::int32_t> tokens;
  for (const std::string& name : find_text_files(path, extensions)) {
    const MappedInput file(name);
    files.push_back(static_cast<std::int64_t>(tokens.size()));
    for (std::string_view text = file.text(); !text.empty();) {
      const std::string_view line = text.substr(0, text.find('\n'));
      text.remove_prefix(std::min(text.size(), line.size() + 1));
      for (const std::int64_t token : tokenizer.encode(line))
        tokens.push_back(static_cast<std::int32_t>(token));
    }
  }
  return tokens;
}

OpenedData open_masked_text(const std::string& path, const DataOptions& options,
                            const std::vector<std::string>& extensions) {
  check_validation_fraction(options.validation_fraction);
  const auto tokenizer = open_tokenizer(options);
  std::vector<std::int64_t> files;
  std::vector<std::int32_t> tokens = read_tokens(path, extensions, *tokenizer, files);
  const std::int64_t sample = std::max<std::int64_t>(1, options.context - 2);
  const auto samples = (static_cast<std::int64_t>(tokens.size()) + sample - 1) / sample;
  const bool validates = options.validation_fraction > 0;
  if (samples < (validates ? 2 : 1)) {
    throw DataError(str("'", path, "' has ", tokens.size(), " tokens, expected more than ",
                        validates ? sample : 0,
                        validates ? ", a sample for training and one for validation" : "",
                        ". Use more text or a shorter context"));
  }
  std::int64_t held_back = std::llround(static_cast<double>(samples) * options.validation_fraction);
  if (validates) held_back = std::clamp<std::int64_t>(held_back, 1, samples - 1);
  const auto cut = tokens.begin() + std::min<std::int64_t>((samples - held_back) * sample,
                                                           static_cast<std::int64_t>(tokens.size()));
  OpenedData opened{.kind = "masked_text", .train = nullptr, .validation = nullptr};
  if (held_back > 0) {
    opened.validation = std::make_shared<MaskedText>(std::vector(cut, tokens.end()), tokenizer,
                                                     options.context, options.seed, path);
  }
  tokens.erase(cut, tokens.end());
  opened.train = std::make_shared<MaskedText>(std::move(tokens), tokenizer, options.context, options.seed,
                                              path, std::move(files));
  return opened;
}

}  // namespace

MaskedText::MaskedText(std::vector<std::int32_t> tokens, std::shared_ptr<const WordPiece> tokenizer,
                       std::int64_t context, std::uint64_t seed, std::string source,
                       std::vector<std::int64_t> files)
    : tokens_(std::move(tokens)), tokenizer_(std::move(tokenizer)), seed_(seed), files_(std::move(files)) {
  if (context < 3) throw UsageError(str("the context is ", context, " tokens, expected at least 3"));
  info_ = {.kind = "masked_text",
           .source = std::move(source),
           .input_shape = {3, context},
           .classes = tokenizer_->size(),
           .targets_per_sample = context,
           .vocabulary = tokenizer_->size()};
}

std::int64_t MaskedText::size() const {
  const std::int64_t sample = info_.targets_per_sample - 2;
  return (static_cast<std::int64_t>(tokens_.size()) + sample - 1) / sample;
}

std::vector<std::int64_t> MaskedText::file_starts() const {
  if (files_.empty()) return {};
  std::vector<std::int64_t> starts;
  for (const std::int64_t token : files_)
    starts.push_back(std::min(size(), divide_rounding_up(token, info_.targets_per_sample - 2)));
  starts.push_back(size());
  return without_empty_files(std::move(starts));
}

Batch MaskedText::get_at_epoch(std::span<const std::int64_t> indices, std::int64_t epoch) const {
  check_indices(indices, size());
  const auto samples = static_cast<std::int64_t>(indices.size());
  const std::int64_t length = info_.targets_per_sample;
  Batch batch{.inputs = {at::empty({samples, 3, length}, at::kLong)},
              .targets = {at::full({samples, length}, kNothingAsked, at::kLong)},
              .samples = samples};
  auto* input = batch.inputs[0].mutable_data_ptr<std::int64_t>();
  auto* target = batch.targets[0].mutable_data_ptr<std::int64_t>();
  for (const std::int64_t index : indices) {
    const auto begin = tokens_.begin() + index * (length - 2);
    const std::int64_t count = std::min<std::int64_t>(length - 2, tokens_.end() - begin);
    write_bert_sample(*tokenizer_, {begin, begin + count}, {}, length,
                      {input, input + length, input + 2 * length});
    hide(index, epoch, input + 1, target + 1, count);
    input += 3 * length;
    target += length;
  }
  return batch;
}

void MaskedText::hide(std::int64_t index, std::int64_t epoch, std::int64_t* tokens, std::int64_t* target,
                      std::int64_t count) const {
  // Epochs are a large odd number apart, so that no two (seed, epoch) pairs of a training collide.
  RandomStream random(seed_ + static_cast<std::uint64_t>(epoch) * 0x9E3779B97F4A7C15ULL,
                      static_cast<std::uint64_t>(index));
  std::vector<std::int64_t> places(static_cast<std::size_t>(count));
  std::iota(places.begin(), places.end(), 0);
  const auto hidden = std::max<std::int64_t>(1, std::llround(kHiddenPart * static_cast<double>(count)));
  for (std::int64_t i = 0; i < hidden; ++i) {
    const auto chosen = static_cast<std::size_t>(i) + random.below(static_cast<std::uint64_t>(count - i));
    std::swap(places[static_cast<std::size_t>(i)], places[chosen]);
    const std::int64_t place = places[static_cast<std::size_t>(i)];
    target[place] = tokens[place];
    const double draw = random.uniform();
    if (draw < 0.8) {
      tokens[place] = tokenizer_->mask();
    } else if (draw < 0.9) {
      tokens[place] = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(tokenizer_->size())));
    }
  }
}

bool MaskedTextKind::detect(const std::string& /*name*/, const std::string& /*path*/) { return false; }

OpenedData MaskedTextKind::open(const std::string& /*name*/, const std::string& path,
                                const DataOptions& options, const Options& own) {
  return open_masked_text(path, options, own.extensions);
}

}  // namespace rondo
