#include "rondo/backend/native/sparse_all_reduce.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "rondo/backend/engine/dense_tensor.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

using shared_memory::Engine;

// Every rank's `own`, side by side along a new first dimension. Of one shape on all ranks.
at::Tensor gathered(Engine& engine, const at::Tensor& own, Duration timeout) {
  std::vector<std::int64_t> sizes = own.sizes().vec();
  sizes.insert(sizes.begin(), engine.size());
  at::Tensor all = at::empty(sizes, own.options());
  const ElementType element = element_type(own.scalar_type(), "all_reduce", false);
  CollectiveRequest request;
  request.kind = OperationKind::all_gather;
  request.type = element.type;
  request.elements = static_cast<std::uint64_t>(own.numel()) * element.per_element;
  request.input.base = static_cast<std::byte*>(own.data_ptr());
  request.output = {static_cast<std::byte*>(all.data_ptr()), request.bytes(), {}};
  engine.run(std::move(request), timeout, std::pair(own, all));
  return all;
}

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

void sparse_all_reduce(Engine& engine, const std::vector<at::Tensor>& tensors, Duration timeout) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.layout() != at::kSparse) {
      throw UsageError(
          rondo::str("all_reduce: of sparse tensors only COO tensors can be reduced, not ", tensor.layout()));
    }
  }
  const at::Tensor own = sum_of(tensors);
  const at::Tensor said = description(own);
  const at::Tensor all_said = gathered(engine, said, timeout);
  const std::int64_t agreed = said.numel() - 1;
  for (int rank = 0; rank < engine.size(); ++rank) {
    if (all_said[rank].narrow(0, 0, agreed).equal(said.narrow(0, 0, agreed))) continue;
    const std::string reason =
        rondo::str("all_reduce: rank ", rank, " has a sparse tensor of another shape or dtype than rank ",
                   engine.rank(), ", which has ", own.sizes(), " ", own.scalar_type());
    engine.abort(reason);
    throw MismatchError(reason, {rank});
  }
  // All ranks send as much as the one that has most.
  const std::int64_t most = all_said.select(1, agreed).max().item<std::int64_t>();
  at::Tensor sum = at::zeros_like(own);
  if (most > 0) {
    const at::Tensor indices = gathered(engine, padded(own.indices(), 1, most).contiguous(), timeout);
    const at::Tensor values = gathered(engine, padded(own.values(), 0, most).contiguous(), timeout);
    for (int rank = 0; rank < engine.size(); ++rank) {
      const std::int64_t has = all_said[rank][agreed].item<std::int64_t>();
      sum = sum + at::sparse_coo_tensor(indices[rank].narrow(1, 0, has), values[rank].narrow(0, 0, has),
                                        own.sizes());
    }
  }
  sum = sum.coalesce();
  const at::NoGradGuard no_grad;
  for (const at::Tensor& tensor : tensors) tensor.copy_(sum);
}

}  // namespace rondo
