#include "rondo/format/thinned_metrics.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <iterator>
#include <map>
#include <string>

#include "rondo/base/error.h"

namespace rondo {
namespace {

template <class Value>
std::optional<Value> larger(const std::optional<Value>& a, const std::optional<Value>& b) {
  if (!a || !b) return a ? a : b;
  if constexpr (std::is_floating_point_v<Value>) {
    if (!std::isfinite(*a)) return a;
    if (!std::isfinite(*b)) return b;
  }
  return std::max(*a, *b);
}

std::optional<double> smaller(const std::optional<double>& a, const std::optional<double>& b) {
  if (!a || !b) return a ? a : b;
  if (!std::isfinite(*a)) return b;
  if (!std::isfinite(*b)) return a;
  return std::min(*a, *b);
}

const std::optional<double>& either(const std::optional<double>& first, const std::optional<double>& second) {
  return first ? first : second;
}

}  // namespace

MetricsRow joined_rows(const MetricsRow& earlier, const MetricsRow& later) {
  MetricsRow row = later;
  const auto before = static_cast<double>(earlier.steps.value_or(1));
  const auto after = static_cast<double>(later.steps.value_or(1));
  row.steps = earlier.steps.value_or(1) + later.steps.value_or(1);
  row.smallest_loss =
      smaller(either(earlier.smallest_loss, earlier.loss), either(later.smallest_loss, later.loss));
  row.largest_loss =
      larger(either(earlier.largest_loss, earlier.loss), either(later.largest_loss, later.loss));
  row.largest_step_ms =
      larger(either(earlier.largest_step_ms, earlier.step_ms), either(later.largest_step_ms, later.step_ms));
  for (const auto field : {&MetricsRow::tokens_per_s, &MetricsRow::samples_per_s, &MetricsRow::step_ms,
                           &MetricsRow::compute_ms, &MetricsRow::comm_ms, &MetricsRow::exposed_comm_ms}) {
    if (earlier.*field && later.*field) {
      row.*field = (*(earlier.*field) * before + *(later.*field) * after) / (before + after);
    } else {
      row.*field = either(later.*field, earlier.*field);
    }
  }
  for (const auto field : {&MetricsRow::peak_bytes, &MetricsRow::peak_rss_bytes, &MetricsRow::peak_pss_bytes})
    row.*field = larger(earlier.*field, later.*field);
  for (const auto& [key, value] : earlier.others) {
    const auto [other, is_new] = row.others.try_emplace(key, value);
    if (!is_new) other->second = *larger(std::optional(value), std::optional(other->second));
  }
  return row;
}

ThinnedMetricsWriter::ThinnedMetricsWriter(std::filesystem::path path, std::int64_t first_step,
                                           bool its_validation, std::size_t most_rows)
    : path_(std::move(path)), most_rows_(most_rows) {
  if (std::filesystem::exists(path_)) {
    std::string kept;
    bool dropped = false;
    for (const MetricsRow& row : read_metrics(path_).rows) {
      if (row.step > first_step || (its_validation && row.step == first_step && row.is_validation())) {
        dropped = true;
        continue;
      }
      kept += to_json_line(row) + "\n";
      if (row.is_validation()) continue;
      ++rows_;
      while (steps_ < row.steps.value_or(1)) steps_ *= 2;
    }
    if (dropped) replace_text_file(path_, kept);
  }
  writer_.emplace(path_);
}

void ThinnedMetricsWriter::append_step(std::span<const MetricsRow> of_ranks) {
  add(of_ranks);
  write();
}

void ThinnedMetricsWriter::append_steps(std::span<const std::vector<MetricsRow>> steps) {
  std::exception_ptr failure;
  for (const std::vector<MetricsRow>& of_ranks : steps) {
    add(of_ranks);
    if (failure || rows_ + rows_to_write_.size() <= most_rows_) continue;
    // What the next rows stand for depends on it.
    try {
      write();
    } catch (const Error&) {
      failure = std::current_exception();  // the other steps are to be kept too
    }
  }
  if (failure) std::rethrow_exception(failure);
  write();
}

void ThinnedMetricsWriter::add(std::span<const MetricsRow> of_ranks) {
  if (begun_.empty()) {
    begun_.assign(of_ranks.begin(), of_ranks.end());
  } else {
    for (std::size_t rank = 0; rank < of_ranks.size(); ++rank)
      begun_[rank] = joined_rows(begun_[rank], of_ranks[rank]);
  }
  if (begun_.front().steps.value_or(1) >= steps_) complete();
}

void ThinnedMetricsWriter::append_validation(const MetricsRow& row) {
  complete();  // the file is in the order of steps
  rows_to_write_.push_back(row);
  write();
}

void ThinnedMetricsWriter::flush() {
  complete();
  write();
}

void ThinnedMetricsWriter::complete() {
  std::move(begun_.begin(), begun_.end(), std::back_inserter(rows_to_write_));
  begun_.clear();
}

void ThinnedMetricsWriter::open() {
  if (writer_ && std::filesystem::exists(path_)) return;
  writer_.reset();
  if (!std::filesystem::exists(path_)) rows_ = 0;
  writer_.emplace(path_);
}

void ThinnedMetricsWriter::write() {
  try {
    open();
    writer_->append(rows_to_write_);
  } catch (...) {
    writer_.reset();
    if (rows_to_write_.size() > most_rows_)
      rows_to_write_.erase(rows_to_write_.begin(),
                           rows_to_write_.end() - static_cast<std::ptrdiff_t>(most_rows_));
    throw;
  }
  rows_ +=
      static_cast<std::size_t>(std::count_if(rows_to_write_.begin(), rows_to_write_.end(),
                                             [](const MetricsRow& row) { return !row.is_validation(); }));
  rows_to_write_.clear();
  if (rows_ > most_rows_) thin();
}

void ThinnedMetricsWriter::thin() {
  std::map<int, MetricsRow> held;  // by rank
  std::string text;
  std::size_t kept = 0;
  const auto keep = [&](const MetricsRow& row) {
    text += to_json_line(row) + "\n";
    ++kept;
  };
  for (const MetricsRow& row : read_metrics(path_).rows) {
    if (row.is_validation()) {
      text += to_json_line(row) + "\n";
    } else if (const auto before = held.find(row.rank); before == held.end()) {
      held.emplace(row.rank, row);
    } else {
      keep(joined_rows(before->second, row));
      held.erase(before);
    }
  }
  for (const auto& [rank, row] : held) keep(row);
  writer_.reset();
  replace_text_file(path_, text);
  rows_ = kept;
  steps_ *= 2;
  writer_.emplace(path_);
}

}  // namespace rondo
