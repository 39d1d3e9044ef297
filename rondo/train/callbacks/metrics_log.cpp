#include "rondo/train/callbacks/metrics_log.h"

#include <torch/types.h>

#include "rondo/backend/collectives.h"
#include "rondo/train/trainer.h"

namespace rondo {
namespace {

// Looking at the process's memory costs tens of microseconds, and its proportional share milliseconds: not
// every step.
constexpr Duration kMemoryInterval = std::chrono::milliseconds(50);
constexpr Duration kPssInterval = std::chrono::seconds(10);

bool due(std::optional<TimePoint>& last, Duration interval) {
  const TimePoint now = Clock::now();
  if (last && now - *last < interval) return false;
  last = now;
  return true;
}

void drop_rows_after(const std::filesystem::path& file, std::int64_t step) {
  if (!std::filesystem::exists(file)) return;
  std::string kept;
  bool dropped = false;
  for (const MetricsRow& row : read_metrics(file).rows) {
    if (row.step > step) {
      dropped = true;
    } else {
      kept += to_json_line(row) + "\n";
    }
  }
  if (dropped) replace_text_file(file, kept);
}

}  // namespace

MetricsLog::MetricsLog(Options options) : options_(std::move(options)), memory_(options_.accounted_bytes) {}

void MetricsLog::on_train_begin(Trainer& trainer, const FitPlan& plan) {
  counts_tokens_ = plan.unit == "tokens";
  if (trainer.strategy().context().rank() != 0) return;
  drop_rows_after(options_.file, plan.first_step);
  writer_.emplace(options_.file);
}

void MetricsLog::on_step_end(Trainer& trainer, const StepRecord& record) {
  sample_memory();
  records_.push_back(record);
  figures_.push_back({.step_ms = record.times.step_ms,
                      .compute_ms = record.times.compute_ms,
                      .comm_ms = record.times.comm_ms,
                      .exposed_comm_ms = record.times.exposed_comm_ms,
                      .peak_bytes = static_cast<double>(memory_.peak().count),
                      .peak_rss_bytes = static_cast<double>(peak_rss().count),
                      .peak_pss_bytes = static_cast<double>(memory_.peak_pss().count)});
  if (static_cast<std::int64_t>(records_.size()) >= options_.every_steps) flush(trainer);
}

void MetricsLog::on_validation_end(Trainer& trainer, const ValidationRecord& record) {
  flush(trainer);
  if (!writer_) return;
  MetricsRow row;
  row.step = record.step;
  row.epoch = record.epoch;
  row.elapsed_s = record.elapsed_s;
  const auto value = [&](const char* metric) -> std::optional<double> {
    const auto found = record.values.find(metric);
    return found == record.values.end() ? std::nullopt : std::optional(found->second);
  };
  row.validation_loss = value("loss");
  row.validation_accuracy = value("accuracy");
  writer_->append(row);
}

void MetricsLog::on_train_end(Trainer& trainer, const FitResult&) { flush(trainer); }

void MetricsLog::sample_memory() {
  // An allocator's own books cost nothing to read.
  if (options_.accounted_bytes || due(memory_sampled_, kMemoryInterval)) memory_.sample();
  if (due(pss_sampled_, kPssInterval)) memory_.sample_pss();
}

void MetricsLog::flush(Trainer& trainer) {
  if (records_.empty()) return;
  constexpr auto kWidth = static_cast<std::int64_t>(sizeof(LocalFigures) / sizeof(double));
  const auto rows = static_cast<std::int64_t>(records_.size());
  const at::Tensor mine = at::from_blob(figures_.data(), {rows, kWidth}, at::kDouble);
  const std::vector<at::Tensor> of_ranks = gather(mine, trainer.strategy().context().world(), 0);
  if (writer_) {
    for (std::size_t i = 0; i < records_.size(); ++i) {
      const StepRecord& record = records_[i];
      for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
        const LocalFigures& figures = static_cast<const LocalFigures*>(of_ranks[rank].const_data_ptr())[i];
        MetricsRow row;
        row.rank = static_cast<int>(rank);
        row.step = record.step;
        row.epoch = record.epoch;
        row.elapsed_s = record.elapsed_s;
        row.loss = record.loss;
        row.learning_rate = record.learning_rate;
        row.loss_scale = record.loss_scale;
        (counts_tokens_ ? row.tokens_per_s : row.samples_per_s) = record.rate;
        row.step_ms = figures.step_ms;
        row.compute_ms = figures.compute_ms;
        row.comm_ms = figures.comm_ms;
        row.exposed_comm_ms = figures.exposed_comm_ms;
        row.peak_bytes = static_cast<std::uint64_t>(figures.peak_bytes);
        row.peak_rss_bytes = static_cast<std::uint64_t>(figures.peak_rss_bytes);
        row.peak_pss_bytes = static_cast<std::uint64_t>(figures.peak_pss_bytes);
        writer_->append(row);
      }
    }
  }
  records_.clear();
  figures_.clear();
}

}  // namespace rondo
