#include "rondo/train/evaluation.h"

#include <torch/nn/module.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <numeric>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

// Evaluation mode, back to the former mode afterwards.
class EvaluationMode {
 public:
  explicit EvaluationMode(torch::nn::Module& module) : module_(module), was_training_(module.is_training()) {
    module_.eval();
  }
  ~EvaluationMode() { module_.train(was_training_); }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  torch::nn::Module& module_;
  bool was_training_;
};

// The data set in batches that do not depend on who computes them.
class FixedBatches {
 public:
  FixedBatches(const Dataset& data, std::int64_t batch_size) : data_(data), batch_size_(batch_size) {
    if (batch_size < 1) throw UsageError(str("a batch of ", batch_size, " samples cannot be evaluated"));
  }
  std::int64_t count() const { return (data_.size() + batch_size_ - 1) / batch_size_; }
  // The first number that no rank of `shard` computes.
  std::int64_t end(const InputShard& shard, ForwardPasses passes) const {
    if (passes == ForwardPasses::alone) return count();
    const std::int64_t rounds = (count() + shard.count - 1) / shard.count;
    return rounds * shard.count;
  }
  // Without samples where it lies behind the last.
  Batch get(std::int64_t batch) const {
    if (batch >= count()) return data_.get({});
    const std::int64_t first = batch * batch_size_;
    std::vector<std::int64_t> indices(static_cast<std::size_t>(std::min(batch_size_, data_.size() - first)));
    std::iota(indices.begin(), indices.end(), first);
    return data_.get(indices);
  }

 private:
  const Dataset& data_;
  std::int64_t batch_size_;
};

}  // namespace

std::map<std::string, double> evaluate_exactly(Strategy& strategy, const Model& model, c10::Device device,
                                               const LossFunction& loss, const std::vector<Metric>& metrics,
                                               const Dataset& data, std::int64_t batch_size,
                                               ForwardPasses passes) {
  const FixedBatches batches(data, batch_size);
  const InputShard shard = strategy.input_shard();
  std::size_t width = 0;
  for (const Metric& metric : metrics) width += metric.sums;

  // One row a batch, zero where another rank computes it: adding the ranks' tables moves values and rounds
  // nothing.
  at::Tensor table = at::zeros({batches.count(), static_cast<std::int64_t>(width)}, at::kDouble);
  {
    const torch::NoGradGuard no_gradients;
    const EvaluationMode mode(*model.module);
    for (std::int64_t b = shard.index; b < batches.end(shard, passes); b += shard.count) {
      const Batch batch = batches.get(b);
      const at::Tensor target = batch.target.to(device);
      const at::Tensor output = model.forward(batch.input.to(device));
      if (b >= batches.count()) continue;
      const Loss batch_loss = loss(output, target);
      double* sums = table.data_ptr<double>() + static_cast<std::size_t>(b) * width;
      for (const Metric& metric : metrics) {
        metric.measure({output, target, batch_loss}, {sums, metric.sums});
        sums += metric.sums;
      }
    }
  }
  table = strategy.reduce(ReduceOp::SUM, table);

  std::vector<double> totals(width, 0.0);
  const double* row = table.data_ptr<double>();
  for (std::int64_t b = 0; b < batches.count(); ++b, row += width) {
    for (std::size_t i = 0; i < width; ++i) totals[i] += row[i];
  }
  std::map<std::string, double> results;
  std::size_t first = 0;
  for (const Metric& metric : metrics) {
    results[metric.name] = metric.result(std::span(totals).subspan(first, metric.sums));
    first += metric.sums;
  }
  return results;
}

at::Tensor predict_all(Strategy& strategy, const Model& model, c10::Device device, const Dataset& data,
                       std::int64_t batch_size, ForwardPasses passes) {
  const torch::NoGradGuard no_gradients;
  const EvaluationMode mode(*model.module);
  const FixedBatches batches(data, batch_size);
  const InputShard shard = strategy.input_shard();
  std::vector<at::Tensor> mine;
  for (std::int64_t b = shard.index; b < batches.end(shard, passes); b += shard.count) {
    mine.push_back(model.forward(batches.get(b).input.to(device)));
  }
  // A rank without a batch contributes no rows, but of the right shape.
  if (mine.empty()) mine.push_back(model.forward(data.get({}).input.to(device)));
  const at::Tensor by_rank = strategy.gather(at::cat(mine, 0), 0);

  // Rows arrive rank by rank; put each batch where it belongs.
  std::vector<at::Tensor> in_order(static_cast<std::size_t>(batches.count()));
  std::int64_t row = 0;
  for (int rank = 0; rank < shard.count; ++rank) {
    for (std::int64_t b = rank; b < batches.count(); b += shard.count) {
      const std::int64_t rows = std::min(batch_size, data.size() - b * batch_size);
      in_order[static_cast<std::size_t>(b)] = by_rank.narrow(0, row, rows);
      row += rows;
    }
  }
  return in_order.empty() ? by_rank : at::cat(in_order, 0);
}

}  // namespace rondo
