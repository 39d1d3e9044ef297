#include "rondo/train/callbacks/metrics_log.h"

#include <torch/types.h>

#include "rondo/backend/collectives.h"
#include "rondo/train/trainer.h"

namespace rondo {
namespace {

// Measuring the process's memory takes tens of microseconds, and its PSS milliseconds, so neither is measured
// in every step.
constexpr Duration kMemoryInterval = std::chrono::milliseconds(50);
constexpr Duration kPssInterval = std::chrono::seconds(10);

bool due(std::optional<TimePoint>& last, Duration interval) {
  const TimePoint now = Clock::now();
  if (last && now - *last < interval) return false;
  last = now;
  return true;
}

// Returns the figures that modules on all ranks counted in each step, on rank 0. Names are the same in all
// steps and on all ranks.
std::vector<StepFigures> joint_figures(const std::vector<StepRecord>& records, const Group& world) {
  std::vector<StepFigures> joint;
  std::vector<double> mine;
  for (const StepRecord& record : records) {
    joint.push_back(record.figures);
    for (const auto& [name, figure] : record.figures) mine.insert(mine.end(), {figure.sum, figure.weight});
  }
  if (mine.empty()) return joint;
  const at::Tensor numbers =
      at::from_blob(mine.data(), {static_cast<std::int64_t>(mine.size())}, at::kDouble);
  const std::vector<at::Tensor> of_ranks = gather(numbers, world, 0);
  for (std::size_t rank = 1; rank < of_ranks.size(); ++rank) {
    const auto* next = of_ranks[rank].const_data_ptr<double>();
    for (StepFigures& figures : joint) {
      for (auto& [name, figure] : figures) {
        figure += {.sum = next[0], .weight = next[1]};
        next += 2;
      }
    }
  }
  return joint;
}

}  // namespace

MetricsLog::MetricsLog(Options options)
    : options_(std::move(options)), output_(options_.file), memory_(options_.tracked_bytes) {}

void MetricsLog::on_train_begin(Trainer& trainer, const FitOutline& outline) {
  counts_tokens_ = outline.unit == "tokens";
  if (options_.peak_flops) {
    utilisation_.emplace(trainer, *options_.peak_flops > 0 ? options_.peak_flops : std::nullopt);
  }
  if (trainer.strategy().context().rank() != 0) return;
  writer_.emplace(options_.file, outline.first_step, outline.validation_due);
}

void MetricsLog::on_step_end(Trainer& trainer, const StepRecord& record) {
  sample_memory();
  const std::optional<double> utilisation =
      utilisation_ ? utilisation_->end_step(trainer, record) : std::nullopt;
  records_.push_back(record);
  figures_.push_back({.loss = record.loss,
                      .gradient_norm = record.gradient_norm.value_or(0),
                      .utilisation = utilisation.value_or(0),
                      .rate = record.rate,
                      .step_ms = record.times.step_ms,
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
  MetricsRow row = validation_row(record.step, record.values);
  row.epoch = record.epoch;
  row.elapsed_s = record.elapsed_s;
  output_.write([&] { writer_->append_validation(row); });
  for (const auto& observer : options_.observers) observer({&row, 1});
}

void MetricsLog::on_train_end(Trainer& trainer, const FitResult&) { before_save(trainer); }

void MetricsLog::sample_memory() {
  // Reading an allocator's own figures costs nothing.
  if (options_.tracked_bytes || due(memory_sampled_, kMemoryInterval)) memory_.sample();
  if (due(pss_sampled_, kPssInterval)) memory_.sample_pss();
}

void MetricsLog::flush(Trainer& trainer) {
  if (records_.empty()) return;
  constexpr auto kWidth = static_cast<std::int64_t>(sizeof(LocalFigures) / sizeof(double));
  const auto rows = static_cast<std::int64_t>(records_.size());
  const at::Tensor mine = at::from_blob(figures_.data(), {rows, kWidth}, at::kDouble);
  const Group& world = trainer.strategy().context().world();
  const std::vector<at::Tensor> of_ranks = gather(mine, world, 0);
  const std::vector<StepFigures> counted = joint_figures(records_, world);
  if (writer_) {
    std::vector<std::vector<MetricsRow>> steps(records_.size());
    for (std::size_t i = 0; i < records_.size(); ++i) {
      const StepRecord& record = records_[i];
      std::vector<MetricsRow>& of_step = steps[i];
      for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
        const LocalFigures& figures = static_cast<const LocalFigures*>(of_ranks[rank].const_data_ptr())[i];
        MetricsRow row;
        row.rank = static_cast<int>(rank);
        row.step = record.step;
        row.epoch = record.epoch;
        row.elapsed_s = record.elapsed_s;
        row.loss = figures.loss;
        row.learning_rate = record.learning_rate;
        row.loss_scale = record.loss_scale;
        if (record.gradient_norm) row.others["gradient_norm"] = figures.gradient_norm;
        if (figures.utilisation > 0) row.others["mfu"] = figures.utilisation;
        for (const auto& [name, figure] : counted[i]) row.others[name] = figure.value();
        (counts_tokens_ ? row.tokens_per_s : row.samples_per_s) = figures.rate;
        row.step_ms = figures.step_ms;
        row.compute_ms = figures.compute_ms;
        row.comm_ms = figures.comm_ms;
        row.exposed_comm_ms = figures.exposed_comm_ms;
        row.peak_bytes = static_cast<std::uint64_t>(figures.peak_bytes);
        row.peak_rss_bytes = static_cast<std::uint64_t>(figures.peak_rss_bytes);
        row.peak_pss_bytes = static_cast<std::uint64_t>(figures.peak_pss_bytes);
        of_step.push_back(std::move(row));
      }
    }
    output_.write([&] { writer_->append_steps(steps); });
    for (const auto& observer : options_.observers) {
      for (const std::vector<MetricsRow>& of_step : steps) observer(of_step);
    }
  }
  records_.clear();
  figures_.clear();
}

}  // namespace rondo
