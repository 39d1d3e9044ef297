#include "rondo/data/masked_text.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "rondo/base/error.h"
#include "rondo/base/integer.h"
#include "rondo/base/random.h"
#include "rondo/base/text.h"
#include "rondo/data/mapped_input.h"
#include "rondo/data/subset.h"
#include "rondo/data/text_files.h"

namespace rondo {
namespace {

constexpr double kHiddenPart = 0.15;
constexpr std::int64_t kNothingAsked = -100;

// All text below `path` as tokens. Line by line, so that memory holds tokens and not words. `files` gets the
// first token of each file.
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
  // Epochs are a large odd number apart, so that no two (seed, epoch) of a training meet.
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
