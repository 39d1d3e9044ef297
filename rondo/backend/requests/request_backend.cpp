#include "rondo/backend/requests/request_backend.h"

#include <ATen/ATen.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "rondo/backend/engine/failure_record.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/collective/shared_memory/message.h"

namespace rondo {
namespace {

// Gathers every rank's `own`, which is contiguous and of one shape on all ranks, stacked along a new first
// dimension. Collective; blocks.
using GatherRanks = std::function<at::Tensor(const at::Tensor& own)>;

// Returns the sum, on the CPU.
at::Tensor sum_of(const std::vector<at::Tensor>& tensors) {
  at::Tensor sum = tensors.front().detach().cpu();
  for (std::size_t i = 1; i < tensors.size(); ++i) sum = sum + tensors[i].detach().cpu();
  return sum.coalesce();
}

// Encodes the properties that ranks must agree on, followed by the number of nonzero elements.
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

// Sums sparse COO tensors over `tensors` and ranks and writes the sum to each tensor; all have one shape and
// dtype on all ranks. Ranks' values are added in rank order, and the results are coalesced. Throws the errors
// of `gather`, UsageError for another sparse layout, and MismatchError on all ranks if shapes or dtypes
// differ. Blocking, because the ranks' numbers of elements must be exchanged first.
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
  // All ranks send as many elements as the rank with the most.
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

using c10d::OpType;

bool overlap_each_other(const std::vector<at::Tensor>& tensors) {
  try {
    check_overlaps({.outputs = tensors}, "all_reduce");
    return false;
  } catch (const UsageError&) {
    return true;
  }
}

// Concatenates the elements into one contiguous tensor.
at::Tensor joined(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> flat;
  for (const at::Tensor& tensor : tensors) flat.push_back(tensor.detach().to(at::kCPU).reshape({-1}));
  return at::cat(flat);
}

void check_as_many(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs,
                   const char* operation) {
  if (outputs.size() != inputs.size() || inputs.empty())
    throw UsageError(str(operation, ": as many outputs as inputs are needed, and at least one"));
  check_overlaps({.outputs = outputs}, operation);
}

}  // namespace

Duration RequestBackend::timeout(std::chrono::milliseconds of_call) const {
  const bool unset = of_call == c10d::kUnsetTimeout || of_call == kNoTimeout;
  return unset ? timeout_.load() : bounded_duration(of_call);
}

[[gnu::always_inline]] inline RequestBackend::Work RequestBackend::started(Work work) {
  const std::lock_guard lock(coalescing_mutex_);
  if (coalescing_) coalescing_->push_back(work);
  return work;
}

[[gnu::always_inline]] inline RequestBackend::Work RequestBackend::launch(RequestCall&& call,
                                                                          std::chrono::milliseconds of_call,
                                                                          bool caller_waits) {
  call.refuse_overlaps(getRank(), getSize(), overlaps_ == Overlaps::refused);
  if (call.on_device()) call.copy_on_device();
  return started(start(std::move(call), timeout(of_call), caller_waits));
}

c10::intrusive_ptr<c10d::Backend::Options> RequestBackend::getBackendOptions() {
  const auto limit = std::chrono::duration_cast<std::chrono::milliseconds>(timeout());
  auto options = c10::make_intrusive<Options>(getBackendName(), limit);
  options->group_name = group_name_;
  options->global_ranks_in_group.assign(world_ranks_.begin(), world_ranks_.end());
  return options;
}

void RequestBackend::startCoalescing() {
  const std::lock_guard lock(coalescing_mutex_);
  if (coalescing_) throw UsageError("startCoalescing was called twice, without an endCoalescing in between");
  coalescing_.emplace();
}

RequestBackend::Work RequestBackend::endCoalescing() {
  const std::lock_guard lock(coalescing_mutex_);
  if (!coalescing_) throw UsageError("endCoalescing was called without a startCoalescing before it");
  Work all = coalesce(getRank(), OpType::COALESCED, std::move(*coalescing_));
  coalescing_.reset();
  return all;
}

RequestBackend::Work RequestBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  RequestCall call(getSize(), OperationKind::broadcast, OpType::BROADCAST);
  check_broadcast(tensors, options, getSize());
  const auto from = static_cast<std::size_t>(options.rootTensor);
  call.set_piece(tensors[from], false);
  call.request.root = static_cast<int>(options.rootRank);
  call.request.input = call.request.output = call.in_place(tensors[from]);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (i != from) call.also_to(tensors[i]);
  }
  return launch(std::move(call), options.timeout, !options.asyncOp);
}

// Several tensors are one contribution, and all receive the result, as over Gloo.
RequestBackend::Work RequestBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  check_all_reduce(tensors, options.reduceOp);
  const at::Tensor& first = tensors.front();
  if (first.layout() != at::kStrided) return reduce_sparse(tensors, options);
  RequestCall call(getSize(), OperationKind::all_reduce, OpType::ALLREDUCE);
  call.set_piece(first, true);
  call.request.reduction = reduction_of(options.reduceOp, first.scalar_type());
  if (tensors.size() == 1 && !premultiplies(options.reduceOp)) {
    call.request.input = call.request.output = call.in_place(first);
  } else {
    check_overlaps({.outputs = tensors}, "all_reduce");
    const at::Tensor all =
        premultiplied(combined(tensors, call.request.reduction, "all_reduce"), options.reduceOp);
    call.request.input = call.request.output = call.own(all);
    for (const at::Tensor& tensor : tensors) call.also_to(tensor);
  }
  return launch(std::move(call), options.timeout, !options.asyncOp);
}

RequestBackend::Work RequestBackend::reduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) {
  const auto gather = [&](const at::Tensor& own) {
    std::vector<std::int64_t> sizes = own.sizes().vec();
    sizes.insert(sizes.begin(), getSize());
    at::Tensor all = at::empty(sizes, own.options());
    RequestCall call(getSize(), OperationKind::all_gather, OpType::_ALLREDUCE_SPARSE);
    call.set_piece(own, false);
    call.request.input = call.input(own);
    call.request.output = call.output(all);
    start(std::move(call), timeout(options.timeout), true)->wait();
    return all;
  };
  try {
    sparse_all_reduce(tensors, getRank(), gather);
  } catch (const MismatchError&) {
    fail(*this, std::current_exception());
    throw;
  }
  return started(c10::make_intrusive<EndedWork>(getRank(), OpType::_ALLREDUCE_SPARSE, tensors));
}

// A tensor may be listed twice, or overlap another, as over Gloo: each entry is reduced from its current
// contents.
RequestBackend::Work RequestBackend::allreduce_coalesced(Tensors& tensors,
                                                         const c10d::AllreduceCoalescedOptions& options) {
  check_all_reduce_coalesced(tensors);
  const bool copied = overlap_each_other(tensors) || premultiplies(options.reduceOp);
  std::vector<RequestCall> calls;
  for (const at::Tensor& tensor : tensors) {
    RequestCall& call = calls.emplace_back(getSize(), OperationKind::all_reduce, OpType::ALLREDUCE);
    call.set_piece(tensor, true);
    call.request.reduction = reduction_of(options.reduceOp, tensor.scalar_type());
    if (copied) {
      const at::Tensor copy = tensor.detach().to(at::kCPU).clone(at::MemoryFormat::Contiguous);
      call.request.input = call.request.output = call.own(premultiplied(copy, options.reduceOp));
      call.also_to(tensor);
    } else {
      call.request.input = call.request.output = call.in_place(tensor);
    }
  }
  CoalescedWork::Parts parts;
  for (RequestCall& call : calls) parts.push_back(launch(std::move(call), options.timeout, !options.asyncOp));
  return coalesce(getRank(), OpType::ALLREDUCE_COALESCED, std::move(parts));
}

RequestBackend::Work RequestBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  RequestCall call(getSize(), OperationKind::reduce, OpType::REDUCE);
  check_reduce(tensors, options, getSize());
  if (premultiplies(options.reduceOp))
    throw UsageError("reduce: PREMUL_SUM is for all_reduce and reduce_scatter only");
  const at::Tensor& tensor = tensors.front();
  call.set_piece(tensor, true);
  call.request.root = static_cast<int>(options.rootRank);
  call.request.reduction = reduction_of(options.reduceOp, tensor.scalar_type());
  call.request.input = call.request.output = call.in_place(tensor);
  return launch(std::move(call), options.timeout, !options.asyncOp);
}

// Gathers pieces of unequal sizes, as NCCL does: one broadcast from each rank.
RequestBackend::Work RequestBackend::all_gather_unequal(const Tensors& pieces, const at::Tensor& input,
                                                        const c10d::AllgatherOptions& options) {
  check_pieces(pieces, input, getRank(), getSize(), "all_gather");
  check_overlaps({{&input, 1}, pieces, getRank(), getSize()}, "all_gather");
  const at::Tensor& own = pieces[static_cast<std::size_t>(getRank())];
  own.detach().copy_(input.detach().reshape(own.sizes()));
  CoalescedWork::Parts parts;
  for (int root = 0; root < getSize(); ++root) {
    const at::Tensor& piece = pieces[static_cast<std::size_t>(root)];
    RequestCall call(getSize(), OperationKind::broadcast, OpType::ALLGATHER);
    call.set_piece(piece, false);
    call.request.root = root;
    call.request.input = call.request.output = call.in_place(piece);
    parts.push_back(launch(std::move(call), options.timeout, !options.asyncOp));
  }
  return coalesce(getRank(), OpType::ALLGATHER, std::move(parts));
}

// Several inputs are sent as one piece; every list of outputs receives all inputs of all ranks.
RequestBackend::Work RequestBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                               const c10d::AllgatherOptions& options) {
  if (outputs.size() == 1 && inputs.size() == 1 && differ_in_size(outputs.front()))
    return all_gather_unequal(outputs.front(), inputs.front(), options);
  check_all_gather(outputs, inputs, getSize());
  RequestCall call(getSize(), OperationKind::all_gather, OpType::ALLGATHER);
  const at::Tensor& tensor = inputs.front();
  if (inputs.size() == 1) {
    call.set_piece(tensor, false);
    call.request.input = call.input(tensor);
    call.request.output = call.outputs(outputs.front());
    return launch(std::move(call), options.timeout, !options.asyncOp);
  }
  const at::Tensor sent = joined(inputs);
  call.set_piece(sent, false);
  call.request.input = call.own(sent);
  const auto pieces = static_cast<std::int64_t>(outputs.front().size());
  const at::Tensor all = sent.new_empty({pieces, tensor.numel()});
  call.request.output = call.own(all);
  for (const Tensors& list : outputs) {
    for (std::int64_t i = 0; i < pieces; ++i) {
      const at::Tensor& output = list[static_cast<std::size_t>(i)];
      call.copy_to(all.select(0, i).view(output.sizes()), output);
    }
  }
  call.memory.result_lists = outputs.size();
  return launch(std::move(call), options.timeout, !options.asyncOp);
}

RequestBackend::Work RequestBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                     const c10d::AllgatherOptions& options) {
  check_divides(output, input, getSize(), "all_gather_into_tensor");
  RequestCall call(getSize(), OperationKind::all_gather, OpType::_ALLGATHER_BASE);
  call.set_piece(input, false);
  call.request.input = call.input(input);
  call.request.output = call.output(output);
  return launch(std::move(call), options.timeout, !options.asyncOp);
}

RequestBackend::Work RequestBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                     const c10d::AllgatherOptions& options) {
  check_as_many(outputs, inputs, "all_gather_into_tensor_coalesced");
  CoalescedWork::Parts parts;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    parts.push_back(_allgather_base(outputs[i], inputs[i], options));
  return coalesce(getRank(), OpType::COALESCED, std::move(parts));
}

RequestBackend::Work RequestBackend::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                                         const c10d::AllgatherOptions& options) {
  check_all_gather_coalesced(outputs, inputs, getSize());
  const TensorLists by_input = lists_by_input(outputs, inputs, getSize(), "all_gather_coalesced");
  CoalescedWork::Parts parts;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    TensorLists one_output{by_input[i]};
    Tensors one_input{inputs[i]};
    parts.push_back(allgather(one_output, one_input, options));
  }
  return coalesce(getRank(), OpType::ALLGATHER_COALESCED, std::move(parts));
}

RequestBackend::Work RequestBackend::gather(TensorLists& outputs, Tensors& inputs,
                                            const c10d::GatherOptions& options) {
  check_gather(outputs, inputs, options, getRank(), getSize());
  RequestCall call(getSize(), OperationKind::gather, OpType::GATHER);
  const at::Tensor& tensor = inputs.front();
  call.set_piece(tensor, false);
  call.request.root = static_cast<int>(options.rootRank);
  call.request.input = call.input(tensor);
  if (getRank() == options.rootRank) call.request.output = call.outputs(outputs.front());
  return launch(std::move(call), options.timeout);
}

RequestBackend::Work RequestBackend::scatter(Tensors& outputs, TensorLists& inputs,
                                             const c10d::ScatterOptions& options) {
  check_scatter(outputs, inputs, options, getRank(), getSize());
  RequestCall call(getSize(), OperationKind::scatter, OpType::SCATTER);
  const at::Tensor& tensor = outputs.front();
  call.set_piece(tensor, false);
  call.request.root = static_cast<int>(options.rootRank);
  call.request.output = call.output(tensor);
  if (getRank() == options.rootRank) call.request.input = call.inputs(inputs.front());
  return launch(std::move(call), options.timeout);
}

// Reduces pieces of unequal sizes, as NCCL does: one reduction to each rank.
RequestBackend::Work RequestBackend::reduce_scatter_unequal(const at::Tensor& output, const Tensors& pieces,
                                                            const c10d::ReduceScatterOptions& options) {
  check_pieces(pieces, output, getRank(), getSize(), "reduce_scatter");
  check_overlaps({pieces, {&output, 1}, getRank(), getSize()}, "reduce_scatter");
  CoalescedWork::Parts parts;
  for (int root = 0; root < getSize(); ++root) {
    const at::Tensor& piece = pieces[static_cast<std::size_t>(root)];
    RequestCall call(getSize(), OperationKind::reduce, OpType::REDUCE_SCATTER);
    call.regular = false;
    call.set_piece(piece, true);
    call.request.root = root;
    call.request.reduction = reduction_of(options.reduceOp, piece.scalar_type());
    call.request.input = call.input(premultiplied(piece, options.reduceOp));
    if (root == getRank()) call.request.output = call.output(output);
    parts.push_back(launch(std::move(call), options.timeout));
  }
  return coalesce(getRank(), OpType::REDUCE_SCATTER, std::move(parts));
}

RequestBackend::Work RequestBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                    const c10d::ReduceScatterOptions& options) {
  if (outputs.size() == 1 && inputs.size() == 1 && differ_in_size(inputs.front()))
    return reduce_scatter_unequal(outputs.front(), inputs.front(), options);
  RequestCall call(getSize(), OperationKind::reduce_scatter, OpType::REDUCE_SCATTER);
  const at::Tensor& tensor = only(outputs, "reduce_scatter");
  call.set_piece(tensor, true);
  call.request.reduction = reduction_of(options.reduceOp, tensor.scalar_type());
  Tensors pieces = only_list(inputs, getSize(), tensor, "reduce_scatter");
  for (at::Tensor& piece : pieces) piece = premultiplied(piece, options.reduceOp);
  call.request.input = call.inputs(pieces);
  call.request.output = call.output(tensor);
  return launch(std::move(call), options.timeout, !options.asyncOp);
}

RequestBackend::Work RequestBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                          const c10d::ReduceScatterOptions& options) {
  check_divides(input, output, getSize(), "reduce_scatter_tensor");
  RequestCall call(getSize(), OperationKind::reduce_scatter, OpType::_REDUCE_SCATTER_BASE);
  call.set_piece(output, true);
  call.request.reduction = reduction_of(options.reduceOp, output.scalar_type());
  call.request.input = call.input(premultiplied(input, options.reduceOp));
  call.request.output = call.output(output);
  return launch(std::move(call), options.timeout, !options.asyncOp);
}

RequestBackend::Work RequestBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  check_as_many(outputs, inputs, "reduce_scatter_tensor_coalesced");
  CoalescedWork::Parts parts;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    parts.push_back(_reduce_scatter_base(outputs[i], inputs[i], options));
  return coalesce(getRank(), OpType::COALESCED, std::move(parts));
}

RequestBackend::Work RequestBackend::exchange(const Tensors& outputs, const Tensors& inputs,
                                              std::chrono::milliseconds of_call) {
  check_one_each(outputs, inputs, getSize(), "all_to_all");
  RequestCall call(getSize(), OperationKind::all_to_all, OpType::ALLTOALL);
  CollectiveRequest& request = call.request;
  request.type = DType::uint8;
  request.input = call.inputs(inputs);
  request.output = call.outputs(outputs);
  for (const at::Tensor& tensor : inputs) request.input_bytes.push_back(tensor.nbytes());
  for (const at::Tensor& tensor : outputs) request.output_bytes.push_back(tensor.nbytes());
  request.elements = *std::max_element(request.input_bytes.begin(), request.input_bytes.end());
  request.exchanges_sizes = true;
  return launch(std::move(call), of_call);
}

RequestBackend::Work RequestBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                              const c10d::AllToAllOptions& options) {
  return exchange(outputs, inputs, options.timeout);
}

RequestBackend::Work RequestBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                   std::vector<std::int64_t>& output_splits,
                                                   std::vector<std::int64_t>& input_splits,
                                                   const c10d::AllToAllOptions& options) {
  return exchange(pieces_by_rank(output, output_splits, getSize(), "all_to_all"),
                  pieces_by_rank(input, input_splits, getSize(), "all_to_all"), options.timeout);
}

RequestBackend::Work RequestBackend::send(Tensors& tensors, int destination, int tag) {
  return started(start_send(only(tensors, "send"), destination, tag));
}

RequestBackend::Work RequestBackend::receive(const Tensors& tensors, int source, int tag) {
  const at::Tensor& tensor = only(tensors, "recv");
  check_overlaps({.outputs = tensors}, "recv");
  return started(start_receive(tensor, source, tag));
}

RequestBackend::Work RequestBackend::recv(Tensors& tensors, int source, int tag) {
  if (source == shared_memory::kAnyRank) check_peer(source, getSize());  // reserved for recvAnysource
  return receive(tensors, source, tag);
}

RequestBackend::Work RequestBackend::recvAnysource(Tensors& tensors, int tag) {
  return receive(tensors, shared_memory::kAnyRank, tag);
}

RequestBackend::Work RequestBackend::barrier(const c10d::BarrierOptions& options) {
  return launch(RequestCall(getSize(), OperationKind::barrier, OpType::BARRIER), options.timeout);
}

}  // namespace rondo
