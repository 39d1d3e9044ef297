#include "rondo/backend/requests/sparse_all_reduce.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

// On the CPU.
at::Tensor sum_of(const std::vector<at::Tensor>& tensors) {
  at::Tensor sum = tensors.front().detach().cpu();
  for (std::size_t i = 1; i < tensors.size(); ++i) sum = sum + tensors[i].detach().cpu();
  return sum.coalesce();
}

// What ranks must agree about, and the number of their elements last.
at::Tensor description(const at::Tensor& tensor) {
  constexpr std::size_t kMostDimensions = 16;
  std::vector<std::int64_t> numbers(kMostDimensions + 3, -1);
  if (tensor.sizes().size() > kMostDimensions)
    throw UsageError("all_reduce: a sparse tensor has more than 16 dimensions");
  std::copy(tensor.sizes().begin(), tensor.sizes().end(), numbers.begin());
  numbers[kMostDimensions] = tensor.sparse_dim();
  numbers[kMostDimensions + 1] = static_cast<std::int64_t>(tensor.scalar_type());
  numbers.back() = tensor._nnz();
  return at::tensor(numbers, at::kLong);
}

at::Tensor padded(const at::Tensor& tensor, std::int64_t dimension, std::int64_t length) {
  std::vector<std::int64_t> sizes = tensor.sizes().vec();
  const std::int64_t has = sizes[static_cast<std::size_t>(dimension)];
  sizes[static_cast<std::size_t>(dimension)] = length;
  at::Tensor result = at::zeros(sizes, tensor.options());
  result.narrow(dimension, 0, has).copy_(tensor);
  return result;
}

}  // namespace

void sparse_all_reduce(const std::vector<at::Tensor>& tensors, int rank, const GatherRanks& gather) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.layout() != at::kSparse) {
      throw UsageError(
          rondo::str("all_reduce: of sparse tensors only COO tensors can be reduced, not ", tensor.layout()));
    }
  }
  const at::Tensor own = sum_of(tensors);
  const at::Tensor said = description(own);
  const at::Tensor all_said = gather(said);
  const std::int64_t agreed = said.numel() - 1;
  const auto ranks = static_cast<int>(all_said.size(0));
  for (int other = 0; other < ranks; ++other) {
    if (all_said[other].narrow(0, 0, agreed).equal(said.narrow(0, 0, agreed))) continue;
    throw MismatchError(
        rondo::str("all_reduce: rank ", other, " has a sparse tensor of another shape or dtype than rank ",
                   rank, ", which has ", own.sizes(), " ", own.scalar_type()),
        {other});
  }
  // All ranks send as much as the one that has most.
  const std::int64_t most = all_said.select(1, agreed).max().item<std::int64_t>();
  at::Tensor sum = at::zeros_like(own);
  if (most > 0) {
    const at::Tensor indices = gather(padded(own.indices(), 1, most).contiguous());
    const at::Tensor values = gather(padded(own.values(), 0, most).contiguous());
    for (int each = 0; each < ranks; ++each) {
      const std::int64_t has = all_said[each][agreed].item<std::int64_t>();
      sum = sum + at::sparse_coo_tensor(indices[each].narrow(1, 0, has), values[each].narrow(0, 0, has),
                                        own.sizes());
    }
  }
  sum = sum.coalesce();
  const at::NoGradGuard no_grad;
  for (const at::Tensor& tensor : tensors) tensor.copy_(sum);
}

}  // namespace rondo
