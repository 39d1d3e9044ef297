#include "rondo/parallel/ddp/sparse_exchange.h"

#include <torch/types.h>

#include <algorithm>
#include <numeric>

#include "rondo/backend/collectives.h"

namespace rondo {
namespace {

// Special values in place of a number of rows.
constexpr std::int64_t kNoGradient = -1;
constexpr std::int64_t kDenseGradient = -2;  // accumulated onto a dense one

constexpr std::int64_t kRowNumberBytes = sizeof(std::int64_t);

std::int64_t rows_of(const at::Tensor& gradient) {
  if (!gradient.defined()) return kNoGradient;
  return gradient.is_sparse() ? gradient._nnz() : kDenseGradient;
}

std::int64_t row_bytes(const at::Tensor& parameter) {
  return static_cast<std::int64_t>(parameter.nbytes()) / std::max<std::int64_t>(parameter.size(0), 1);
}

// Compares the bytes that a rank receives when all ranks' rows are gathered, each padded to the largest
// number of rows, with those of a dense all-reduce.
bool rows_are_fewer_bytes(const at::Tensor& parameter, std::int64_t most_rows, int ranks) {
  const std::int64_t gathered = ranks * most_rows * (row_bytes(parameter) + kRowNumberBytes);
  return gathered < 2 * static_cast<std::int64_t>(parameter.nbytes());
}

}  // namespace

SparseExchange::SparseExchange(std::vector<ModelTensor> parameters, Group group)
    : parameters_(std::move(parameters)), group_(std::move(group)) {}

void SparseExchange::combine(const GradientWeight& weight, const std::vector<bool>& untouched) {
  if (parameters_.empty()) return;
  const at::NoGradGuard no_grad;
  at::Tensor said = at::empty({static_cast<std::int64_t>(parameters_.size())}, at::kLong);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& gradient = parameters_[i].tensor.mutable_grad();
    if (gradient.defined() && gradient.is_sparse()) gradient = gradient.coalesce();
    said.data_ptr<std::int64_t>()[i] = rows_of(gradient);
    // Gradients with weight 0 are not read, so they are not sent.
    if (weight.scale == 0 && gradient.defined()) said.data_ptr<std::int64_t>()[i] = 0;
  }
  const std::vector<at::Tensor> all = all_gather(said.to(group_.traits().control_device()), group_);
  std::vector<const std::int64_t*> by_rank;
  std::vector<at::Tensor> on_cpu;
  for (const at::Tensor& each : all)
    by_rank.push_back(on_cpu.emplace_back(each.cpu()).const_data_ptr<std::int64_t>());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (untouched[i]) continue;
    std::vector<std::int64_t> rows;
    for (const std::int64_t* const rank : by_rank) rows.push_back(rank[i]);
    const std::int64_t most = *std::max_element(rows.begin(), rows.end());
    const bool any_dense = std::find(rows.begin(), rows.end(), kDenseGradient) != rows.end();
    const at::Tensor& parameter = parameters_[i].tensor;
    if (any_dense || (most > 0 && !rows_are_fewer_bytes(parameter, most, group_.size()))) {
      reduce_dense(parameter, weight);
    } else if (most >= 0) {
      gather_rows(parameter, weight, rows);
    }
  }
}

void SparseExchange::gather_rows(const at::Tensor& parameter, const GradientWeight& weight,
                                 const std::vector<std::int64_t>& rows) {
  const std::int64_t most = *std::max_element(rows.begin(), rows.end());
  const std::int64_t own = std::max<std::int64_t>(rows[static_cast<std::size_t>(group_.rank())], 0);
  const at::Tensor& gradient = parameter.grad();
  // Each record holds the index of a row and its values, so that one message carries both. Ranks with fewer
  // rows than the largest number pad with zeros.
  at::Tensor records = at::zeros({most, kRowNumberBytes + row_bytes(parameter)},
                                 parameter.options().dtype(at::kByte).requires_grad(false));
  if (own > 0) {
    at::Tensor values = gradient.values().contiguous().view({own, -1});
    if (!weight.equal) values = values * weight.scale;
    const at::Tensor mine = records.narrow(0, 0, own);
    mine.narrow(1, 0, kRowNumberBytes)
        .copy_(gradient.indices()[0].contiguous().view({own, 1}).view(at::kByte));
    mine.narrow(1, kRowNumberBytes, row_bytes(parameter)).copy_(values.view(at::kByte));
  }
  std::vector<at::Tensor> numbers, values;
  if (most > 0) {
    const std::vector<at::Tensor> all = all_gather(records, group_);
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      if (rows[rank] <= 0) continue;
      const at::Tensor theirs = all[rank].narrow(0, 0, rows[rank]);
      numbers.push_back(theirs.narrow(1, 0, kRowNumberBytes).contiguous().view(at::kLong).view({-1}));
      values.push_back(
          theirs.narrow(1, kRowNumberBytes, row_bytes(parameter)).contiguous().view(parameter.scalar_type()));
    }
  }
  std::vector<std::int64_t> shape = parameter.sizes().vec();
  shape[0] = std::accumulate(
      rows.begin(), rows.end(), std::int64_t{0},
      [](std::int64_t sum, std::int64_t count) { return sum + std::max<std::int64_t>(count, 0); });
  const at::TensorOptions options = parameter.options().requires_grad(false);
  const at::Tensor indices = numbers.empty() ? at::empty({0}, options.dtype(at::kLong)) : at::cat(numbers);
  const at::Tensor joined = (values.empty() ? at::empty({0}, options) : at::cat(values)).view(shape);
  // coalesce() adds equal row numbers in the order in which they are concatenated, which is rank order.
  at::Tensor sum = at::sparse_coo_tensor(indices.unsqueeze(0), joined, parameter.sizes()).coalesce();
  if (weight.equal) sum.values().div_(group_.size());
  parameter.mutable_grad() = sum;
}

void SparseExchange::reduce_dense(const at::Tensor& parameter, const GradientWeight& weight) {
  at::Tensor& gradient = parameter.mutable_grad();
  at::Tensor sum = !gradient.defined() || weight.scale == 0
                       ? at::zeros(parameter.sizes(), parameter.options().requires_grad(false))
                   : gradient.is_sparse() ? gradient.to_dense()
                                          : gradient.clone();
  if (!weight.equal) sum.mul_(weight.scale);
  all_reduce(sum, group_);
  if (weight.equal) sum.div_(group_.size());
  gradient = sum;
}

}  // namespace rondo
