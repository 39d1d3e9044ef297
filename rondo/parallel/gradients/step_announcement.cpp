#include "rondo/parallel/gradients/step_announcement.h"

#include <torch/types.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

enum Field : int {
  kActive,
  kSynchronises,
  kBroadcastsBuffers,
  kSamplesPlusOne,
  kLoss,  // bits of a double: every other rank adds zeros to them
  kPredictions,
  kSamples,
  kStopAndSteps,  // bit 0: stop requested; the other bits: number of steps plus one, or 0 if not announced
  kScale,         // bits of a double; 0: not announced
  kSampleSum,     // bits of doubles, in an announcement that carries samples
  kSampleSize,
  kFields
};

constexpr double kRounding = 1e-3;  // relative difference of two factors that count as equal

}  // namespace

void StepAnnouncement::start(const RankStep& mine) {
  if (started()) ranks();
  offered_ = nullptr;
  started_ = true;
  if (!table_.defined()) table_ = at::empty({group_.size(), kFields}, at::kLong);
  auto* const rows = table_.mutable_data_ptr<std::int64_t>();
  std::fill_n(rows, table_.numel(), 0);
  std::int64_t* const row = rows + group_.rank() * kFields;
  row[kActive] = mine.active;
  row[kSynchronises] = mine.synchronises;
  row[kBroadcastsBuffers] = mine.broadcasts_buffers;
  row[kSamplesPlusOne] = mine.samples ? *mine.samples + 1 : 0;
  row[kLoss] = std::bit_cast<std::int64_t>(mine.totals.loss);
  row[kPredictions] = mine.totals.predictions;
  row[kSamples] = mine.totals.samples;
  row[kStopAndSteps] = (mine.totals.stop ? 1 : 0) + 2 * (mine.steps ? *mine.steps + 1 : 0);
  row[kScale] = std::bit_cast<std::int64_t>(mine.scale.value_or(0));
  carries_samples_ = drift_ && drift_->is_due();
  if (carries_samples_) {
    const ParameterSample sample = drift_->sample();
    row[kSampleSum] = std::bit_cast<std::int64_t>(sample.sum);
    row[kSampleSize] = std::bit_cast<std::int64_t>(sample.size);
  }
  if (control_device_ != at::kCPU || message_.empty()) message_ = {table_.to(control_device_)};
  ranks_.clear();
  work_ = group_.backend()->allreduce(message_);
}

void StepAnnouncement::ensure_started() {
  if (offered_) {
    start(std::exchange(offered_, nullptr)());
  } else if (offered_always_ && !started_) {
    start(offered_always_());
  }
}

StepTotals StepAnnouncement::totals() {
  if (started()) ranks();
  return totals_;
}

const std::vector<RankStep>& StepAnnouncement::ranks() {
  if (work_) {
    work_->wait();
    work_.reset();
    if (control_device_ != at::kCPU) table_.copy_(message_.front());
    const auto table = table_.accessor<std::int64_t, 2>();
    totals_ = {};
    samples_.clear();
    for (int rank = 0; rank < group_.size(); ++rank) {
      const auto row = table[rank];
      RankStep step{row[kActive] != 0, row[kSynchronises] != 0, row[kBroadcastsBuffers] != 0, {}, {}};
      if (row[kSamplesPlusOne] > 0) step.samples = row[kSamplesPlusOne] - 1;
      if (row[kStopAndSteps] > 1) step.steps = row[kStopAndSteps] / 2 - 1;
      if (row[kScale] != 0) step.scale = std::bit_cast<double>(row[kScale]);
      step.totals = {std::bit_cast<double>(row[kLoss]), row[kPredictions], row[kSamples],
                     row[kStopAndSteps] % 2 != 0};
      totals_.loss += step.totals.loss;
      totals_.predictions += step.totals.predictions;
      totals_.samples += step.totals.samples;
      totals_.stop = totals_.stop || step.totals.stop;
      ranks_.push_back(step);
      samples_.push_back({std::bit_cast<double>(row[kSampleSum]), std::bit_cast<double>(row[kSampleSize])});
    }
    std::vector<int> active;
    for (int rank = 0; rank < group_.size(); ++rank) {
      if (ranks_[static_cast<std::size_t>(rank)].active) active.push_back(rank);
    }
    if (!active.empty()) last_active_ = std::move(active);
    compare_steps();
    compare_scales();
    compare_samples();
  }
  return ranks_;
}

void StepAnnouncement::compare_steps() const {
  const RankStep* first = nullptr;
  for (const RankStep& step : ranks_) {
    if (!step.steps) continue;
    if (first == nullptr) first = &step;
    if (step.steps == first->steps) continue;
    const auto rank = static_cast<int>(&step - ranks_.data());
    throw MismatchError(str("rank ", rank, " has called step() ", *step.steps, " times for this model, rank ",
                            first - ranks_.data(), " ", *first->steps,
                            " times: all ranks call step() after finish_backward(), or none does"),
                        {rank});
  }
}

void StepAnnouncement::compare_scales() const {
  const RankStep* first = nullptr;
  for (const RankStep& step : ranks_) {
    if (!step.scale) continue;
    if (first == nullptr) first = &step;
    if (std::abs(*step.scale - *first->scale) <= kRounding * std::abs(*first->scale)) continue;
    const auto rank = static_cast<int>(&step - ranks_.data());
    throw MismatchError(
        str("between finish_backward() and step() of the last step rank ", first - ranks_.data(),
            " scaled its gradients by ", *first->scale, " and rank ", rank, " by ", *step.scale,
            ". torch::nn::utils::clip_grad_norm_ takes the norm of this rank's shards alone: call "
            "prepared->clip_gradients(max_norm) or rondo::clip_grad_norm_(*prepared, max_norm), which take "
            "that "
            "of the full model, in place of it"),
        {rank});
  }
}

void StepAnnouncement::compare_samples() {
  // A rank that has run out of data makes no optimizer steps.
  if (carries_samples_ && everyone_active()) drift_->compare(samples_);
}

void StepAnnouncement::clear() {
  offered_ = nullptr;
  started_ = false;
  // The engine may still write to the memory of an operation that was not waited for.
  if (work_) {
    table_.reset();
    message_.clear();
    work_.reset();
  }
  ranks_.clear();
}

GradientWeight StepAnnouncement::gradient_weight(bool divide_by_active) {
  const double share = 1.0 / group_.size();
  if (!started()) return {share, true};
  std::int64_t total = 0;
  int active = 0;
  std::vector<int> told;
  std::vector<int> silent;
  for (int rank = 0; rank < group_.size(); ++rank) {
    const RankStep& step = ranks()[static_cast<std::size_t>(rank)];
    if (!step.active) continue;
    ++active;
    (step.samples ? told : silent).push_back(rank);
    total += step.samples.value_or(0);
  }
  const RankStep& mine = ranks()[static_cast<std::size_t>(group_.rank())];
  if (!told.empty() && !silent.empty()) {
    throw MismatchError(
        str("rank ", join(told, ", "), " called set_local_samples before this backward pass, rank ",
            join(silent, ", "), " did not; all ranks must, or none"),
        silent);
  }
  const bool all_active = active == group_.size();
  if (told.empty()) {
    if (!mine.active) return {0, false};
    return {divide_by_active ? 1.0 / active : share, all_active};
  }
  if (!mine.active || total == 0) return {0, false};
  const bool same = all_active && std::all_of(ranks().begin(), ranks().end(), [&](const RankStep& step) {
                      return step.samples == mine.samples;
                    });
  return {static_cast<double>(*mine.samples) / static_cast<double>(total), same};
}

bool StepAnnouncement::everyone_active() {
  return !started() ||
         std::all_of(ranks().begin(), ranks().end(), [](const RankStep& step) { return step.active; });
}

}  // namespace rondo
