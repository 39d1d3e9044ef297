#include "rondo/backend/native/native_backend.h"

#include <ATen/ops/cat.h>

#include <algorithm>

#include "rondo/backend/engine/arguments.h"
#include "rondo/backend/engine/dense_tensor.h"
#include "rondo/backend/engine/failure_record.h"
#include "rondo/backend/engine/overlap.h"
#include "rondo/backend/engine/store_adapter.h"
#include "rondo/backend/memory/registered_memory.h"
#include "rondo/backend/native/call_arguments.h"
#include "rondo/backend/native/coalesced_work.h"
#include "rondo/backend/native/native_call.h"
#include "rondo/backend/native/native_options.h"
#include "rondo/backend/native/native_work.h"
#include "rondo/backend/native/sparse_all_reduce.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/channel/failure.h"
#include "rondo/collective/shared_memory/layout.h"

namespace rondo {
namespace {

using c10d::OpType;
using shared_memory::Engine;

shared_memory::Message message(const DenseTensor& tensor, int peer, int tag,
                               std::shared_ptr<NativeOperation> operation, const char* what) {
  return {.peer = peer,
          .tag = tag,
          .type = element_type(tensor.data.scalar_type(), what, false).type,
          .data = tensor.bytes(),
          .bytes = tensor.data.nbytes(),
          .owner = std::move(operation)};
}

bool overlap_each_other(const std::vector<at::Tensor>& tensors) {
  try {
    check_overlaps({.outputs = tensors}, "all_reduce");
    return false;
  } catch (const UsageError&) {
    return true;
  }
}

// Their elements in one contiguous tensor.
at::Tensor side_by_side(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> flat;
  for (const at::Tensor& tensor : tensors) flat.push_back(tensor.detach().to(at::kCPU).reshape({-1}));
  return at::cat(flat);
}

}  // namespace

NativeBackend::NativeBackend(const c10::intrusive_ptr<c10d::Store>& store,
                             const shared_memory::GroupOptions& options, bool deterministic)
    : ExtendedBackend(options.rank, options.size),
      timeout_(options.timeout),
      staging_(MemoryCategory::communication, Bytes{shared_memory::RankSegment::bytes(options.size)}) {
  StoreFromC10d view(store);
  engine_ = std::make_shared<Engine>(view, options, process_arena());
  planned_ = PlannedCollectives::make(view, engine_, deterministic);
  // The rank that holds the store may end as soon as its constructor has returned.
  engine_->finish_rendezvous();
}

// Plans may add in another order, where the group is not deterministic.
EngineTraits NativeBackend::traits() const {
  EngineTraits traits = kNativeTraits;
  traits.parameters_in_place = registers_allocations();
  traits.deterministic = planned_ == nullptr || planned_->adds_in_rank_order();
  return traits;
}

std::optional<std::uint64_t> NativeBackend::publish(const at::Tensor& tensor) {
  if (!engine_->registered(tensor.data_ptr())) return {};
  const std::lock_guard lock(kept_mutex_);
  kept_.push_back(tensor);
  return engine_->registered_offset(tensor.data_ptr());
}

void* NativeBackend::published(int rank, std::uint64_t place) {
  return engine_->registered_address(rank, place);
}

void NativeBackend::close() {
  const std::string reason = str("group '", engine_->options().group_name, "' was shut down");
  if (planned_ != nullptr) planned_->close(reason);
  engine_->close(reason);
}

std::exception_ptr NativeBackend::cause_of(const std::exception_ptr& error) noexcept {
  const auto& cause = engine_->options().cause_of;
  return cause ? cause(error) : error;
}

void NativeBackend::abort() {
  constexpr const char* kReason = "the group was aborted by its caller";
  engine_->abort(kReason);
  if (planned_ != nullptr) planned_->abort(kReason);
}

void NativeBackend::fail(const std::exception_ptr& error) {
  engine_->abort(error);
  if (planned_ != nullptr) planned_->abort(describe_failure(error, getRank()).text);
}

void NativeBackend::setTimeout(std::chrono::milliseconds timeout) { timeout_ = bounded_duration(timeout); }

Duration NativeBackend::timeout(std::chrono::milliseconds of_call) const {
  const bool unset = of_call == c10d::kUnsetTimeout || of_call == kNoTimeout;
  return unset ? timeout_.load() : bounded_duration(of_call);
}

c10::intrusive_ptr<c10d::Backend::Options> NativeBackend::getBackendOptions() {
  const auto limit = std::chrono::duration_cast<std::chrono::milliseconds>(timeout_.load());
  auto options = c10::make_intrusive<Options>(getBackendName(), limit);
  options->group_name = engine_->options().group_name;
  const std::vector<int>& members = engine_->options().world_ranks;
  options->global_ranks_in_group.assign(members.begin(), members.end());
  return options;
}

void NativeBackend::startCoalescing() {
  engine_->check_process();
  const std::lock_guard lock(coalescing_mutex_);
  if (coalescing_) throw UsageError("startCoalescing was called twice, without an endCoalescing in between");
  coalescing_.emplace();
}

NativeBackend::Work NativeBackend::endCoalescing() {
  const std::lock_guard lock(coalescing_mutex_);
  if (!coalescing_) throw UsageError("endCoalescing was called without a startCoalescing before it");
  Work all = coalesce(getRank(), OpType::COALESCED, std::move(*coalescing_));
  coalescing_.reset();
  return all;
}

NativeBackend::Work NativeBackend::started(Work work) {
  const std::lock_guard lock(coalescing_mutex_);
  if (coalescing_) coalescing_->push_back(work);
  return work;
}

NativeBackend::Work NativeBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  NativeCall call(*engine_, OperationKind::broadcast, OpType::BROADCAST);
  check_broadcast(tensors, options, getSize());
  const auto from = static_cast<std::size_t>(options.rootTensor);
  call.set_piece(tensors[from], false);
  call.request().root = static_cast<int>(options.rootRank);
  call.request().input = call.request().output = call.in_place(tensors[from]);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (i != from) call.also_to(tensors[i]);
  }
  return started(call.start(engine_, timeout(options.timeout), planned_, !options.asyncOp));
}

void NativeBackend::all_reduce_now(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  if (tensor.layout() != at::kStrided) return ExtendedBackend::all_reduce_now(tensor, op);
  const ElementType element = element_type(tensor.scalar_type(), name(OperationKind::all_reduce), true);
  if (!tensor.is_contiguous()) check_overlaps({.outputs = {&tensor, 1}}, name(OperationKind::all_reduce));
  CollectiveRequest request;
  request.kind = OperationKind::all_reduce;
  request.type = element.type;
  request.reduction = reduction_of(op, tensor.scalar_type());
  // The tensor of a device holds the result where there is one rank; a closed group still throws.
  if (getSize() == 1 && !tensor.is_cpu()) {
    barrier({})->wait();
    return;
  }
  const DenseTensor buffer = dense(tensor, name(OperationKind::all_reduce), true);
  request.elements = static_cast<std::uint64_t>(tensor.numel()) * element.per_element;
  request.input.base = request.output.base = buffer.bytes();
  const Duration timeout = timeout_.load();
  if (planned_ == nullptr || !planned_->run(request, Deadline::after(timeout))) {
    engine_->run(std::move(request), timeout, buffer);
  }
  buffer.copy_back();
}

// Several tensors are one contribution, and all get the result, as over Gloo.
NativeBackend::Work NativeBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  check_all_reduce(tensors, options.reduceOp);
  if (tensors.front().layout() != at::kStrided) return sparse_allreduce(tensors, options);
  NativeCall call(*engine_, OperationKind::all_reduce, OpType::ALLREDUCE);
  const at::Tensor& first = tensors.front();
  call.set_piece(first, true);
  call.request().reduction = reduction_of(options.reduceOp, first.scalar_type());
  if (tensors.size() == 1) {
    call.request().input = call.request().output = call.in_place(first);
  } else {
    check_overlaps({.outputs = tensors}, "all_reduce");
    const at::Tensor all = combined(tensors, call.request().reduction, "all_reduce");
    call.request().input = call.request().output = call.own(all);
    for (const at::Tensor& tensor : tensors) call.also_to(tensor);
  }
  return started(call.start(engine_, timeout(options.timeout), planned_, !options.asyncOp));
}

NativeBackend::Work NativeBackend::sparse_allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  sparse_all_reduce(*engine_, tensors, timeout(options.timeout));
  NativeWork::Pending done;
  done.operation = std::make_shared<NativeOperation>(
      NativeOperation::Memory{.results = NativeOperation::Results(tensors)});
  done.operation->finish(nullptr);
  done.operation->announce();
  return started(c10::make_intrusive<NativeWork>(engine_, OpType::_ALLREDUCE_SPARSE, std::move(done)));
}

// A tensor may be listed twice, or overlap another, as over Gloo: each place in the list is reduced from what
// it holds now.
NativeBackend::Work NativeBackend::allreduce_coalesced(Tensors& tensors,
                                                       const c10d::AllreduceCoalescedOptions& options) {
  check_all_reduce_coalesced(tensors);
  const bool copied = overlap_each_other(tensors);
  std::vector<NativeCall> calls;
  for (const at::Tensor& tensor : tensors) {
    NativeCall& call = calls.emplace_back(*engine_, OperationKind::all_reduce, OpType::ALLREDUCE);
    call.set_piece(tensor, true);
    call.request().reduction = reduction_of(options.reduceOp, tensor.scalar_type());
    if (copied) {
      call.request().input = call.request().output =
          call.own(tensor.detach().to(at::kCPU).clone(at::MemoryFormat::Contiguous));
      call.also_to(tensor);
    } else {
      call.request().input = call.request().output = call.in_place(tensor);
    }
  }
  CoalescedWork::Parts parts;
  for (NativeCall& call : calls)
    parts.push_back(started(call.start(engine_, timeout(options.timeout), planned_, !options.asyncOp)));
  return coalesce(getRank(), OpType::ALLREDUCE_COALESCED, std::move(parts));
}

NativeBackend::Work NativeBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  NativeCall call(*engine_, OperationKind::reduce, OpType::REDUCE);
  check_reduce(tensors, options, getSize());
  const at::Tensor& tensor = tensors.front();
  call.set_piece(tensor, true);
  call.request().root = static_cast<int>(options.rootRank);
  call.request().reduction = reduction_of(options.reduceOp, tensor.scalar_type());
  call.request().input = call.request().output = call.in_place(tensor);
  return started(call.start(engine_, timeout(options.timeout), planned_, !options.asyncOp));
}

// Gathers pieces of unequal sizes, as NCCL does: one broadcast from each rank.
NativeBackend::Work NativeBackend::all_gather_unequal(const Tensors& pieces, const at::Tensor& input,
                                                      const c10d::AllgatherOptions& options) {
  check_pieces(pieces, input, getRank(), getSize(), "all_gather");
  check_overlaps({{&input, 1}, pieces, getRank(), getSize()}, "all_gather");
  const at::Tensor& own = pieces[static_cast<std::size_t>(getRank())];
  own.detach().copy_(input.detach().reshape(own.sizes()));
  CoalescedWork::Parts parts;
  for (int root = 0; root < getSize(); ++root) {
    const at::Tensor& piece = pieces[static_cast<std::size_t>(root)];
    NativeCall call(*engine_, OperationKind::broadcast, OpType::ALLGATHER);
    call.set_piece(piece, false);
    call.request().root = root;
    call.request().input = call.request().output = call.in_place(piece);
    parts.push_back(started(call.start(engine_, timeout(options.timeout), planned_, !options.asyncOp)));
  }
  return coalesce(getRank(), OpType::ALLGATHER, std::move(parts));
}

// Several inputs go as one piece; every list of outputs gets all inputs of all ranks.
NativeBackend::Work NativeBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                             const c10d::AllgatherOptions& options) {
  if (outputs.size() == 1 && inputs.size() == 1 && differ_in_size(outputs.front()))
    return all_gather_unequal(outputs.front(), inputs.front(), options);
  check_all_gather(outputs, inputs, getSize());
  NativeCall call(*engine_, OperationKind::all_gather, OpType::ALLGATHER);
  const at::Tensor& tensor = inputs.front();
  if (inputs.size() == 1) {
    call.set_piece(tensor, false);
    call.request().input = call.input(tensor);
    call.request().output = call.outputs(outputs.front());
    return started(call.start(engine_, timeout(options.timeout), planned_, !options.asyncOp));
  }
  const at::Tensor sent = side_by_side(inputs);
  call.set_piece(sent, false);
  call.request().input = call.own(sent);
  const auto pieces = static_cast<std::int64_t>(outputs.front().size());
  const at::Tensor all = sent.new_empty({pieces, tensor.numel()});
  call.request().output = call.own(all);
  for (const Tensors& list : outputs) {
    for (std::int64_t i = 0; i < pieces; ++i) {
      const at::Tensor& output = list[static_cast<std::size_t>(i)];
      call.copy_to(all.select(0, i).view(output.sizes()), output);
    }
  }
  call.results_in_lists(outputs.size());
  return started(call.start(engine_, timeout(options.timeout), planned_, !options.asyncOp));
}

NativeBackend::Work NativeBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                   const c10d::AllgatherOptions& options) {
  check_divides(output, input, getSize(), "all_gather_into_tensor");
  NativeCall call(*engine_, OperationKind::all_gather, OpType::_ALLGATHER_BASE);
  call.set_piece(input, false);
  call.request().input = call.input(input);
  call.request().output = call.output(output);
  return started(call.start(engine_, timeout(options.timeout), planned_, !options.asyncOp));
}

NativeBackend::Work NativeBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                   const c10d::AllgatherOptions& options) {
  if (outputs.size() != inputs.size() || inputs.empty()) {
    throw UsageError(
        "all_gather_into_tensor_coalesced: as many outputs as inputs are needed, and at least one");
  }
  check_overlaps({.outputs = outputs}, "all_gather_into_tensor_coalesced");
  CoalescedWork::Parts parts;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    parts.push_back(_allgather_base(outputs[i], inputs[i], options));
  return coalesce(getRank(), OpType::COALESCED, std::move(parts));
}

NativeBackend::Work NativeBackend::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
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

NativeBackend::Work NativeBackend::gather(TensorLists& outputs, Tensors& inputs,
                                          const c10d::GatherOptions& options) {
  check_gather(outputs, inputs, options, getRank(), getSize());
  NativeCall call(*engine_, OperationKind::gather, OpType::GATHER);
  const at::Tensor& tensor = inputs.front();
  call.set_piece(tensor, false);
  call.request().root = static_cast<int>(options.rootRank);
  call.request().input = call.input(tensor);
  if (getRank() == options.rootRank) {
    call.request().output = call.outputs(outputs.front());
  }
  return started(call.start(engine_, timeout(options.timeout)));
}

NativeBackend::Work NativeBackend::scatter(Tensors& outputs, TensorLists& inputs,
                                           const c10d::ScatterOptions& options) {
  check_scatter(outputs, inputs, options, getRank(), getSize());
  NativeCall call(*engine_, OperationKind::scatter, OpType::SCATTER);
  const at::Tensor& tensor = outputs.front();
  call.set_piece(tensor, false);
  call.request().root = static_cast<int>(options.rootRank);
  call.request().output = call.output(tensor);
  if (getRank() == options.rootRank) {
    call.request().input = call.inputs(inputs.front());
  }
  return started(call.start(engine_, timeout(options.timeout)));
}

// Reduces pieces of unequal sizes, as NCCL does: one reduction to each rank.
NativeBackend::Work NativeBackend::reduce_scatter_unequal(const at::Tensor& output, const Tensors& pieces,
                                                          const c10d::ReduceScatterOptions& options) {
  check_pieces(pieces, output, getRank(), getSize(), "reduce_scatter");
  check_overlaps({pieces, {&output, 1}, getRank(), getSize()}, "reduce_scatter");
  CoalescedWork::Parts parts;
  for (int root = 0; root < getSize(); ++root) {
    const at::Tensor& piece = pieces[static_cast<std::size_t>(root)];
    NativeCall call(*engine_, OperationKind::reduce, OpType::REDUCE_SCATTER);
    call.set_piece(piece, true);
    call.request().root = root;
    call.request().reduction = reduction_of(options.reduceOp, piece.scalar_type());
    call.request().input = call.input(piece);
    if (root == getRank()) call.request().output = call.output(output);
    parts.push_back(started(call.start(engine_, timeout(options.timeout))));
  }
  return coalesce(getRank(), OpType::REDUCE_SCATTER, std::move(parts));
}

NativeBackend::Work NativeBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                  const c10d::ReduceScatterOptions& options) {
  if (outputs.size() == 1 && inputs.size() == 1 && differ_in_size(inputs.front()))
    return reduce_scatter_unequal(outputs.front(), inputs.front(), options);
  NativeCall call(*engine_, OperationKind::reduce_scatter, OpType::REDUCE_SCATTER);
  const at::Tensor& tensor = only(outputs, "reduce_scatter");
  call.set_piece(tensor, true);
  call.request().reduction = reduction_of(options.reduceOp, tensor.scalar_type());
  call.request().input = call.inputs(only_list(inputs, getSize(), tensor, "reduce_scatter"));
  call.request().output = call.output(tensor);
  return started(call.start(engine_, timeout(options.timeout), planned_, !options.asyncOp));
}

NativeBackend::Work NativeBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                        const c10d::ReduceScatterOptions& options) {
  check_divides(input, output, getSize(), "reduce_scatter_tensor");
  NativeCall call(*engine_, OperationKind::reduce_scatter, OpType::_REDUCE_SCATTER_BASE);
  call.set_piece(output, true);
  call.request().reduction = reduction_of(options.reduceOp, output.scalar_type());
  call.request().input = call.input(input);
  call.request().output = call.output(output);
  return started(call.start(engine_, timeout(options.timeout), planned_, !options.asyncOp));
}

NativeBackend::Work NativeBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  if (outputs.size() != inputs.size() || inputs.empty()) {
    throw UsageError(
        "reduce_scatter_tensor_coalesced: as many outputs as inputs are needed, and at least one");
  }
  check_overlaps({.outputs = outputs}, "reduce_scatter_tensor_coalesced");
  CoalescedWork::Parts parts;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    parts.push_back(_reduce_scatter_base(outputs[i], inputs[i], options));
  return coalesce(getRank(), OpType::COALESCED, std::move(parts));
}

NativeBackend::Work NativeBackend::exchange(const Tensors& outputs, const Tensors& inputs,
                                            std::chrono::milliseconds of_call) {
  check_one_each(outputs, inputs, getSize(), "all_to_all");
  NativeCall call(*engine_, OperationKind::all_to_all, OpType::ALLTOALL);
  CollectiveRequest& request = call.request();
  request.type = DType::uint8;
  request.input = call.inputs(inputs);
  request.output = call.outputs(outputs);
  for (const at::Tensor& tensor : inputs) request.input_bytes.push_back(tensor.nbytes());
  for (const at::Tensor& tensor : outputs) request.output_bytes.push_back(tensor.nbytes());
  request.elements = *std::max_element(request.input_bytes.begin(), request.input_bytes.end());
  request.exchanges_sizes = true;
  return started(call.start(engine_, timeout(of_call)));
}

NativeBackend::Work NativeBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                            const c10d::AllToAllOptions& options) {
  return exchange(outputs, inputs, options.timeout);
}

NativeBackend::Work NativeBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                 std::vector<std::int64_t>& output_splits,
                                                 std::vector<std::int64_t>& input_splits,
                                                 const c10d::AllToAllOptions& options) {
  return exchange(pieces_by_rank(output, output_splits, getSize(), "all_to_all"),
                  pieces_by_rank(input, input_splits, getSize(), "all_to_all"), options.timeout);
}

NativeBackend::Work NativeBackend::send(Tensors& tensors, int destination, int tag) {
  const DenseTensor tensor = dense(only(tensors, "send"), "send");
  NativeWork::Pending pending;
  pending.operation = std::make_shared<NativeOperation>(NativeOperation::Memory{{tensor.data}, {}, {}});
  pending.timeout = timeout_;
  in_operation(*pending.operation, [&] {
    pending.message = engine_->start_send(message(tensor, destination, tag, pending.operation, "send"));
  });
  return started(c10::make_intrusive<NativeWork>(engine_, OpType::SEND, std::move(pending)));
}

NativeBackend::Work NativeBackend::receive(Tensors& tensors, int source, int tag, OpType type) {
  const DenseTensor tensor = dense(only(tensors, "recv"), "recv", false);
  check_overlaps({.outputs = tensors}, "recv");
  NativeOperation::Memory memory{{tensor.data}, {}, NativeOperation::Results(tensors)};
  if (tensor.copy_of.defined()) memory.copied_back.push_back(tensor);
  NativeWork::Pending pending;
  pending.operation = std::make_shared<NativeOperation>(std::move(memory));
  pending.timeout = timeout_;
  in_operation(*pending.operation, [&] {
    pending.message = engine_->start_receive(message(tensor, source, tag, pending.operation, "recv"));
  });
  return started(c10::make_intrusive<NativeWork>(engine_, type, std::move(pending)));
}

NativeBackend::Work NativeBackend::recv(Tensors& tensors, int source, int tag) {
  return receive(tensors, source, tag, OpType::RECV);
}

NativeBackend::Work NativeBackend::recvAnysource(Tensors& tensors, int tag) {
  return receive(tensors, shared_memory::kAnyRank, tag, OpType::RECVANYSOURCE);
}

NativeBackend::Work NativeBackend::barrier(const c10d::BarrierOptions& options) {
  return started(
      NativeCall(*engine_, OperationKind::barrier, OpType::BARRIER).start(engine_, timeout(options.timeout)));
}

void NativeBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool name_all_missing) {
  const bool unset = options.timeout == c10d::kUnsetTimeout;
  const Duration limit = unset ? timeout_.load() : bounded_duration(options.timeout);
  engine_->monitored_barrier(limit, name_all_missing);
}

c10::intrusive_ptr<c10d::Backend> make_native_backend(const BackendRequest& request) {
  if (request.size > 1) register_cpu_allocations();
  shared_memory::GroupOptions options;
  options.group_name = request.group_name;
  options.rank = request.rank;
  options.size = request.size;
  options.world_ranks = request.world_ranks;
  options.timeout = request.timeout;
  if (request.job_store) {
    // Without other groups the failures that peers leave in shared memory are enough.
    options.cause_of = [record = FailureRecord({}, request.job_store, request.world_ranks)](
                           const std::exception_ptr& error) mutable { return record.first(error); };
  }
  return c10::make_intrusive<NativeBackend>(request.store, options, request.deterministic);
}

RegisteredBackend NativeFolder::engine(const Options& /*none*/) {
  return {make_native_backend, kNativeTraits, true};
}

}  // namespace rondo
