#include "rondo/data/token_windows.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>

#include "rondo/base/error.h"
#include "rondo/base/integer.h"
#include "rondo/base/text.h"
#include "rondo/data/subset.h"

namespace rondo {
namespace {

constexpr std::int64_t kNoTarget = -100;

}  // namespace

TokenWindows::TokenWindows(std::shared_ptr<const TokenSource> tokens, std::int64_t begin, std::int64_t end,
                           const WindowForm& form)
    : tokens_(std::move(tokens)), begin_(begin), end_(end), end_of_document_(form.end_of_document) {
  if (end - begin < form.context + 1) {
    throw DataError(str("'", form.source, "': ", end - begin, " tokens of text, expected at least ",
                        form.context + 1, " (the context and one more)"));
  }
  info_ = {.kind = form.kind,
           .source = form.source,
           .input_shape = {form.context},
           .classes = tokens_->vocabulary(),
           .targets_per_sample = form.context,
           .unit = "tokens"};
}

Batch TokenWindows::get(std::span<const std::int64_t> indices) const {
  check_indices(indices, size());
  const auto samples = static_cast<std::int64_t>(indices.size());
  const std::int64_t context = info_.targets_per_sample;
  Batch batch{.inputs = {at::empty({samples, context}, at::kLong)},
              .targets = {at::empty({samples, context}, at::kLong)},
              .samples = samples};
  auto* input = batch.inputs[0].mutable_data_ptr<std::int64_t>();
  auto* target = batch.targets[0].mutable_data_ptr<std::int64_t>();
  for (const std::int64_t index : indices) {
    const std::int64_t offset = begin_ + index * context;
    tokens_->read(offset, {input, static_cast<std::size_t>(context)});
    std::copy_n(input + 1, context - 1, target);
    tokens_->read(offset + context, {target + context - 1, 1});
    if (end_of_document_) {
      for (std::int64_t i = 0; i < context; ++i) {
        if (input[i] == *end_of_document_) target[i] = kNoTarget;
      }
    }
    input += context;
    target += context;
  }
  return batch;
}

std::vector<std::int64_t> TokenWindows::file_starts() const {
  std::vector<std::int64_t> starts;
  for (const std::int64_t token : tokens_->file_starts()) {
    const std::int64_t within = std::max<std::int64_t>(0, token - begin_);
    starts.push_back(std::min(size(), divide_rounding_up(within, info_.targets_per_sample)));
  }
  starts.back() = size();  // the last window begins before the last tokens
  return without_empty_files(std::move(starts));
}

OpenedData open_windows(const std::shared_ptr<const TokenSource>& tokens, const WindowForm& form,
                        double fraction, const std::string& unit) {
  check_validation_fraction(fraction);
  if (form.context < 1)
    throw UsageError(str("the context is ", form.context, " ", unit, ", expected at least 1"));
  const std::int64_t size = tokens->size(), window = form.context + 1;
  std::int64_t validation = 0;
  if (fraction > 0.0)
    validation = std::max<std::int64_t>(std::llround(static_cast<double>(size) * fraction), window);
  if (size - validation < window) {
    throw DataError(str("'", form.source, "' has ", size, " ", unit, " of text, expected at least ",
                        validation == 0 ? window : 2 * window, ": ", window, " (the context of ",
                        form.context, " ", unit, " and one more)",
                        validation == 0 ? "" : " for training and as many for validation",
                        ". Use more text, a shorter context or a smaller validation fraction"));
  }
  const std::int64_t cut = size - validation;
  OpenedData opened{.kind = form.kind, .train = nullptr, .validation = nullptr};
  opened.train = std::make_shared<TokenWindows>(tokens, 0, cut, form);
  if (validation > 0) opened.validation = std::make_shared<TokenWindows>(tokens, cut, size, form);
  return opened;
}

}  // namespace rondo
