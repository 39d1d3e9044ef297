#include "rondo/data/text.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/data/subset.h"
#include "rondo/data/text_files.h"

namespace rondo {
namespace {

bool detect_text(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return true;
  return looks_like_text(MappedInput(path).text().substr(0, 8192));
}

OpenedData open_text(const std::string& path, const DataOptions& options) {
  check_validation_fraction(options.validation_fraction);
  if (options.context < 1) {
    throw UsageError(str("the context is ", options.context, " bytes, expected at least 1"));
  }
  auto corpus = std::make_shared<const TextCorpus>(find_text_files(path, options.extensions));
  const std::int64_t size = corpus->size(), window = options.context + 1;
  std::int64_t validation = 0;
  if (options.validation_fraction > 0.0) {
    const double wanted = static_cast<double>(size) * options.validation_fraction;
    validation = std::max<std::int64_t>(std::llround(wanted), window);
  }
  if (size - validation < window) {
    throw DataError(str("'", path, "' has ", size, " bytes of text, expected at least ",
                        validation == 0 ? window : 2 * window, ": ", window, " (the context of ",
                        options.context, " bytes and one more)",
                        validation == 0 ? "" : " for training and as many for validation",
                        ". Use more text, a shorter context or a smaller validation fraction"));
  }
  const std::int64_t cut = size - validation;
  OpenedData opened{.kind = "text", .train = nullptr, .validation = nullptr};
  opened.train = std::make_shared<TextDataset>(corpus, 0, cut, options.context, path);
  if (validation > 0) {
    opened.validation = std::make_shared<TextDataset>(corpus, cut, size, options.context, path);
  }
  return opened;
}

}  // namespace

TextCorpus::TextCorpus(const std::vector<std::string>& paths) : starts_{0} {
  for (const std::string& path : paths) {
    files_.emplace_back(path);
    starts_.push_back(starts_.back() + files_.back().bytes().size());
  }
  if (starts_.back() == 0) {
    throw DataError(str("'", paths.empty() ? "" : paths.front(), "' is empty, expected text"));
  }
}

void TextCorpus::read(std::int64_t offset, std::span<std::int64_t> tokens) const {
  auto position = static_cast<std::size_t>(offset);
  // The last file that starts at or before the position; empty files share their start with the next one.
  auto file = static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), position) -
                                       starts_.begin() - 1);
  std::size_t done = 0;
  while (done < tokens.size()) {
    const std::span<const std::uint8_t> bytes = files_[file].bytes().subspan(position - starts_[file]);
    const std::size_t count = std::min(bytes.size(), tokens.size() - done);
    std::copy_n(bytes.begin(), count, tokens.begin() + static_cast<std::ptrdiff_t>(done));
    done += count;
    position += count;
    ++file;
  }
}

TextDataset::TextDataset(std::shared_ptr<const TextCorpus> corpus, std::int64_t begin, std::int64_t end,
                         std::int64_t context, std::string source)
    : corpus_(std::move(corpus)), begin_(begin), end_(end) {
  if (end - begin < context + 1) {
    throw DataError(str("'", source, "': ", end - begin, " bytes of text, expected at least ", context + 1,
                        " (the context and one more)"));
  }
  info_ = {.kind = "text",
           .source = std::move(source),
           .input_shape = {context},
           .classes = 256,
           .targets_per_sample = context,
           .unit = "tokens"};
}

Batch TextDataset::get(std::span<const std::int64_t> indices) const {
  check_indices(indices, size());
  const auto samples = static_cast<std::int64_t>(indices.size());
  const std::int64_t context = info_.targets_per_sample;
  Batch batch{.input = at::empty({samples, context}, at::kLong),
              .target = at::empty({samples, context}, at::kLong),
              .samples = samples};
  auto* input = batch.input.mutable_data_ptr<std::int64_t>();
  auto* target = batch.target.mutable_data_ptr<std::int64_t>();
  const auto length = static_cast<std::size_t>(context);
  for (const std::int64_t index : indices) {
    const std::int64_t offset = begin_ + index * context;
    corpus_->read(offset, {input, length});
    corpus_->read(offset + 1, {target, length});
    input += context;
    target += context;
  }
  return batch;
}

DataKind text_kind() { return {"text", detect_text, open_text}; }

}  // namespace rondo
