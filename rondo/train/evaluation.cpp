#include "rondo/train/evaluation.h"

#include <torch/nn/module.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <numeric>

#include "rondo/base/arithmetic.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/nn/model.h"
#include "rondo/strategy/value_collectives.h"
#include "rondo/train/agreement.h"

namespace rondo {
namespace {

// A division of the data set into batches that does not depend on the ranks.
class FixedBatches {
 public:
  // `most` is the maximum number of batches; 0: all of the data.
  FixedBatches(const Dataset& data, std::int64_t batch_size, std::int64_t most = 0)
      : data_(data), batch_size_(batch_size) {
    if (batch_size < 1) throw UsageError(str("a batch of ", batch_size, " samples cannot be evaluated"));
    if (most < 0) throw UsageError(str("cannot evaluate ", most, " batches: expected 0 or more"));
    count_ = (data_.size() + batch_size_ - 1) / batch_size_;
    if (most > 0) count_ = std::min(count_, most);
  }
  std::int64_t count() const { return count_; }
  // Returns the number of rounds. In each round every rank of `shard` computes `lanes` batches; in the last
  // one some have fewer.
  std::int64_t rounds(const InputShard& shard, int lanes = 1) const {
    return divide_rounding_up(count_, static_cast<std::int64_t>(shard.count) * lanes);
  }
  // Returns whether a rank makes a forward pass for this batch.
  bool computes(std::int64_t batch, ForwardPasses passes) const {
    return batch < count_ || passes == ForwardPasses::together;
  }
  // Returns the batch, empty beyond the last one.
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
  std::int64_t count_ = 0;
};

// Runs the forward passes of this process's replicas, each with its own batch.
void forward_at_replicas(Strategy& strategy, Training& training, const std::vector<Batch>& batches,
                         std::vector<Tensors>& outputs, const std::function<bool(std::size_t)>& computes) {
  const InputShard shard = strategy.input_shard();
  strategy.run([&](int replica) {
    const auto lane = static_cast<std::size_t>(replica - shard.index * shard.replicas);
    if (!computes(lane)) return at::Tensor();
    const torch::NoGradGuard no_gradients;
    const EvaluationMode mode(*training.model().module);
    const auto autocast = training.precision().autocast();
    outputs[lane] = training.forward(batches[lane]);
    return at::Tensor();
  });
}

// Gathers the rows of all ranks on every rank. A rank without batches gets the number of columns from the
// others.
at::Tensor rows_of_ranks(Strategy& strategy, const std::vector<at::Tensor>& own) {
  at::Tensor columns = at::full({1}, own.empty() ? 0 : own.front().size(1), at::kLong);
  all_reduce(columns, strategy.context().world(), ReduceOp::MAX);
  const at::Tensor mine =
      own.empty() ? at::empty({0, columns.item<std::int64_t>()}, at::kDouble) : at::cat(own, 0);
  return gather_values({mine}, 0, strategy.context().world());
}

// Reorders rows from rank order to batch order. `rows` has the number of rows of each batch.
at::Tensor in_order(const at::Tensor& by_rank, const at::Tensor& rows, int ranks) {
  std::vector<at::Tensor> ordered(static_cast<std::size_t>(rows.numel()));
  std::int64_t first = 0;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    for (std::int64_t b = rank; b < rows.numel(); b += ranks) {
      const auto count = rows[b].item<std::int64_t>();
      ordered[static_cast<std::size_t>(b)] = by_rank.narrow(0, first, count);
      first += count;
    }
  }
  return ordered.empty() ? by_rank : at::cat(ordered, 0);
}

}  // namespace

std::optional<std::map<std::string, double>> evaluate_exactly(
    Strategy& strategy, Training& training, const LossFunction& loss, const std::vector<Metric>& metrics,
    const Dataset& data, const EvaluateOptions& options, ForwardPasses passes) {
  const FixedBatches batches(data, options.batch_size, options.batches);
  const InputShard shard = strategy.evaluation_shard();
  std::size_t width = 0;
  for (const Metric& metric : metrics) width += metric.sums;

  if (data.size() == 0 && !metrics.empty())
    throw UsageError(str("metric ", metrics.front().name, " cannot be computed: the data has no sample"));

  // Rows of this rank's batches for each metric that is not a function of sums.
  std::vector<std::vector<at::Tensor>> rows(metrics.size());
  // One row for each batch, zero if another rank computes it: summing the ranks' tables only moves values,
  // without rounding.
  at::Tensor table = at::zeros({batches.count(), static_cast<std::int64_t>(width)}, at::kDouble);
  {
    const torch::NoGradGuard no_gradients;
    const EvaluationMode mode(*training.model().module);
    const int lanes = training.process_replicas().concurrent_forwards;
    const auto measure = [&](std::int64_t b, const Batch& batch, const Tensors& outputs) {
      if (b >= batches.count()) return;
      Tensors targets;
      for (const at::Tensor& target : batch.targets) targets.push_back(target.to(outputs.front().device()));
      const Loss batch_loss = loss(outputs, targets, batch.samples);
      double* sums = table.data_ptr<double>() + static_cast<std::size_t>(b) * width;
      for (std::size_t i = 0; i < metrics.size(); ++i) {
        const Metric& metric = metrics[i];
        if (metric.measure) metric.measure({outputs, targets, batch_loss}, {sums, metric.sums});
        if (metric.rows) rows[i].push_back(metric.rows({outputs, targets, batch_loss}));
        sums += metric.sums;
      }
    };
    StopAgreement stop(strategy, options.stop_requested);
    const std::int64_t rounds = batches.rounds(shard, lanes);
    std::vector<Batch> own(static_cast<std::size_t>(lanes));
    std::vector<Tensors> outputs(own.size());
    for (std::int64_t round = 0; round < rounds; ++round) {
      const std::int64_t first = (round * shard.count + shard.index) * lanes;
      const auto computes = [&](std::size_t lane) {
        return batches.computes(first + static_cast<std::int64_t>(lane), passes);
      };
      for (std::size_t lane = 0; lane < own.size(); ++lane) {
        if (computes(lane)) own[lane] = batches.get(first + static_cast<std::int64_t>(lane));
      }
      if (lanes == 1) {
        if (computes(0)) outputs[0] = training.forward(own[0]);
      } else {
        forward_at_replicas(strategy, training, own, outputs, computes);
      }
      for (std::size_t lane = 0; lane < own.size(); ++lane) {
        if (computes(lane)) measure(first + static_cast<std::int64_t>(lane), own[lane], outputs[lane]);
        outputs[lane].clear();  // released before the next round
        own[lane] = {};
      }
      if (stop.after(round)) return std::nullopt;
      if (options.progress)
        options.progress(std::min((round + 1) * shard.count * lanes, batches.count()), batches.count());
    }
  }
  all_reduce(table, strategy.replicas());

  std::vector<double> totals(width, 0.0);
  const double* row = table.data_ptr<double>();
  for (std::int64_t b = 0; b < batches.count(); ++b, row += width) {
    for (std::size_t i = 0; i < width; ++i) totals[i] += row[i];
  }
  std::map<std::string, double> results;
  std::size_t first = 0;
  for (std::size_t i = 0; i < metrics.size(); ++i) {
    const Metric& metric = metrics[i];
    results[metric.name] = metric.rows ? metric.result_of_rows(rows_of_ranks(strategy, rows[i]))
                                       : metric.result(std::span(totals).subspan(first, metric.sums));
    first += metric.sums;
  }
  return results;
}

Tensors outputs_of(Strategy& strategy, Training& training, const Dataset& data,
                   const EvaluateOptions& options, ForwardPasses passes) {
  const torch::NoGradGuard no_gradients;
  const EvaluationMode mode(*training.model().module);
  const FixedBatches batches(data, options.batch_size, options.batches);
  const InputShard shard = strategy.evaluation_shard();
  std::vector<Tensors> mine;
  for (std::int64_t round = 0; round < batches.rounds(shard); ++round) {
    const std::int64_t own = round * shard.count + shard.index;
    if (batches.computes(own, passes)) mine.push_back(training.forward(batches.get(own)));
  }
  // A rank without a batch contributes zero rows of the right shape.
  if (mine.empty()) mine.push_back(training.forward(data.get({})));

  Tensors results;
  for (std::size_t output = 0; output < mine.front().size(); ++output) {
    Tensors parts;
    // Rows of each batch, fewer than its samples if the data skipped some (ImageOptions::corrupt); zero if
    // another rank computes it.
    at::Tensor rows = at::zeros({batches.count()}, at::kLong);
    for (std::size_t round = 0; round < mine.size(); ++round) {
      const std::int64_t b = static_cast<std::int64_t>(round) * shard.count + shard.index;
      parts.push_back(mine[round][output]);
      if (b < batches.count()) rows[b] = parts.back().size(0);
    }
    all_reduce(rows, strategy.replicas());
    results.push_back(
        in_order(gather_values({at::cat(parts, 0)}, 0, strategy.replicas()), rows, shard.count));
  }
  return results;
}

}  // namespace rondo
