#include <torch/types.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "rondo/train/metrics/metrics.h"

namespace rondo {
namespace {

at::Tensor scores_and_classes(const MetricInput& batch) {
  const at::Tensor counts = batch.target().ne(kIgnoredTarget);
  const at::Tensor scores = logits_of_class_1("auc", batch).masked_select(counts);
  const at::Tensor classes = batch.target().masked_select(counts).gt(0).to(at::kDouble);
  return at::stack({scores, classes}, 1).cpu();
}

// By the ranks of the scores (Mann and Whitney), in whole numbers: exact, in whatever order the rows come.
double area(const at::Tensor& rows) {
  struct Row {
    double score, positive;
  };
  const at::Tensor together = rows.contiguous();
  const auto* first = reinterpret_cast<const Row*>(together.const_data_ptr<double>());
  std::vector<Row> sorted(first, first + together.size(0));
  std::sort(sorted.begin(), sorted.end(), [](const Row& a, const Row& b) { return a.score < b.score; });
  double below = 0;      // negatives with a smaller score
  double twice_won = 0;  // pairs that are in order count 2, equal ones 1
  double positives = 0;
  for (std::size_t begin = 0; begin < sorted.size();) {
    double equal_positives = 0;
    std::size_t end = begin;
    for (; end < sorted.size() && !(sorted[begin].score < sorted[end].score); ++end)
      equal_positives += sorted[end].positive;
    const double equal_negatives = static_cast<double>(end - begin) - equal_positives;
    twice_won += equal_positives * (2 * below + equal_negatives);
    below += equal_negatives;
    positives += equal_positives;
    begin = end;
  }
  const double pairs = positives * below;
  return pairs > 0 ? twice_won / (2 * pairs) : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

Metric auc_metric() {
  return {.name = "auc",
          .sums = 0,
          .measure = {},
          .result = {},
          .rows = scores_and_classes,
          .result_of_rows = area};
}

}  // namespace rondo
