#include "rondo/backend/native/native_backend.h"

#include <algorithm>

#include "rondo/backend/arguments.h"
#include "rondo/backend/native/coalesced_work.h"
#include "rondo/backend/native/dense_tensor.h"
#include "rondo/backend/native/native_work.h"
#include "rondo/backend/native/registered_memory.h"
#include "rondo/backend/store_adapter.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/collective/shared_memory/layout.h"

namespace rondo {
namespace {

using c10d::OpType;
using shared_memory::Engine;

// One request with the tensors it touches.
class Call {
 public:
  Call(OperationKind kind, OpType type) : type_(type) { request_.kind = kind; }

  CollectiveRequest& request() { return request_; }

  // Sets the element type and count from one piece.
  void set_piece(const at::Tensor& piece, bool reduces) {
    const ElementType element = element_type(piece.scalar_type(), name(request_.kind), reduces);
    request_.type = element.type;
    request_.elements = static_cast<std::uint64_t>(piece.numel()) * element.per_element;
  }

  Pieces input(const at::Tensor& tensor) { return whole(tensor, true, false); }
  Pieces output(const at::Tensor& tensor) { return whole(tensor, false, true); }
  Pieces in_place(const at::Tensor& tensor) { return whole(tensor, true, true); }
  Pieces inputs(const std::vector<at::Tensor>& tensors) { return list(tensors, true, false); }
  Pieces outputs(const std::vector<at::Tensor>& tensors) { return list(tensors, false, true); }

  // `planned` may be null.
  NativeBackend::Work start(const std::shared_ptr<Engine>& engine, Duration timeout,
                            PlannedCollectives* planned = nullptr) {
    NativeWork::Pending pending;
    if (planned == nullptr || !planned->run(request_, *engine, {Deadline::after(timeout), nullptr})) {
      pending.sequence = engine->start(std::move(request_));
    }
    for (const DenseTensor& tensor : tensors_) pending.alive.push_back(tensor.data);
    pending.results = std::move(results_);
    pending.timeout = timeout;
    if (std::any_of(copied_back_.begin(), copied_back_.end(),
                    [](const auto& t) { return t.copy_of.defined(); })) {
      pending.finish = [back = std::move(copied_back_)] {
        for (const DenseTensor& tensor : back) tensor.copy_back();
      };
    }
    return c10::make_intrusive<NativeWork>(engine, type_, std::move(pending));
  }

 private:
  std::byte* add(const at::Tensor& tensor, bool reads, bool writes) {
    tensors_.push_back(dense(tensor, name(request_.kind), reads));
    if (writes) {
      results_.push_back(tensor);
      copied_back_.push_back(tensors_.back());
    }
    return tensors_.back().bytes();
  }
  // One tensor; where it holds several pieces they lie side by side.
  Pieces whole(const at::Tensor& tensor, bool reads, bool writes) {
    return {add(tensor, reads, writes), request_.bytes(), {}};
  }
  Pieces list(const std::vector<at::Tensor>& tensors, bool reads, bool writes) {
    Pieces pieces;
    for (const at::Tensor& tensor : tensors) pieces.list.push_back(add(tensor, reads, writes));
    return pieces;
  }

  OpType type_;
  CollectiveRequest request_;
  std::vector<DenseTensor> tensors_;
  std::vector<DenseTensor> copied_back_;
  std::vector<at::Tensor> results_;
};

}  // namespace

NativeBackend::NativeBackend(const c10::intrusive_ptr<c10d::Store>& store,
                             const shared_memory::GroupOptions& options, bool reproducible)
    : c10d::Backend(options.rank, options.size),
      timeout_(options.timeout),
      staging_(MemoryCategory::communication, Bytes{shared_memory::RankSegment::bytes(options.size)}) {
  StoreFromC10d view(store);
  engine_ = std::make_shared<Engine>(view, options, process_arena());
  planned_ = PlannedCollectives::make(view, options, reproducible);
}

void NativeBackend::keep_until_closed(at::Tensor tensor) {
  const std::lock_guard lock(kept_mutex_);
  kept_.push_back(std::move(tensor));
}

void NativeBackend::close() { engine_->close("group '" + engine_->options().group_name + "' was shut down"); }

void NativeBackend::setTimeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }

Duration NativeBackend::timeout(std::chrono::milliseconds of_call) const {
  return of_call == c10d::kUnsetTimeout || of_call == kNoTimeout ? timeout_.load() : Duration(of_call);
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
  Call call(OperationKind::broadcast, OpType::BROADCAST);
  const at::Tensor& tensor = only(tensors, "broadcast");
  call.set_piece(tensor, false);
  call.request().root = static_cast<int>(options.rootRank);
  call.request().input = call.request().output = call.in_place(tensor);
  return started(call.start(engine_, timeout(options.timeout), planned_.get()));
}

void NativeBackend::all_reduce_now(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  const ElementType element = element_type(tensor.scalar_type(), name(OperationKind::all_reduce), true);
  const DenseTensor buffer = dense(tensor, name(OperationKind::all_reduce), true);
  CollectiveRequest request;
  request.kind = OperationKind::all_reduce;
  request.type = element.type;
  request.reduction = reduction_of(op, tensor.scalar_type());
  request.elements = static_cast<std::uint64_t>(tensor.numel()) * element.per_element;
  request.input.base = request.output.base = buffer.bytes();
  const Duration timeout = timeout_.load();
  if (planned_ == nullptr || !planned_->run(request, *engine_, {Deadline::after(timeout), nullptr})) {
    engine_->run(std::move(request), timeout);
  }
  buffer.copy_back();
}

NativeBackend::Work NativeBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  if (tensors.empty()) throw UsageError("all_reduce: no tensor");
  CoalescedWork::Parts parts;
  for (const at::Tensor& tensor : tensors) {
    Call call(OperationKind::all_reduce, OpType::ALLREDUCE);
    call.set_piece(tensor, true);
    call.request().reduction = reduction_of(options.reduceOp, tensor.scalar_type());
    call.request().input = call.request().output = call.in_place(tensor);
    parts.push_back(started(call.start(engine_, timeout(options.timeout), planned_.get())));
  }
  return coalesce(getRank(), OpType::ALLREDUCE_COALESCED, std::move(parts));
}

NativeBackend::Work NativeBackend::allreduce_coalesced(Tensors& tensors,
                                                       const c10d::AllreduceCoalescedOptions& options) {
  return allreduce(tensors, options);
}

NativeBackend::Work NativeBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  Call call(OperationKind::reduce, OpType::REDUCE);
  const at::Tensor& tensor = only(tensors, "reduce");
  call.set_piece(tensor, true);
  call.request().root = static_cast<int>(options.rootRank);
  call.request().reduction = reduction_of(options.reduceOp, tensor.scalar_type());
  call.request().input = call.request().output = call.in_place(tensor);
  return started(call.start(engine_, timeout(options.timeout), planned_.get()));
}

NativeBackend::Work NativeBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                             const c10d::AllgatherOptions& options) {
  Call call(OperationKind::all_gather, OpType::ALLGATHER);
  const at::Tensor& tensor = only(inputs, "all_gather");
  call.set_piece(tensor, false);
  call.request().input = call.input(tensor);
  call.request().output = call.outputs(only_list(outputs, getSize(), tensor, "all_gather"));
  return started(call.start(engine_, timeout(options.timeout), planned_.get()));
}

NativeBackend::Work NativeBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                   const c10d::AllgatherOptions& options) {
  check_divides(output, input, getSize(), "all_gather_into_tensor");
  Call call(OperationKind::all_gather, OpType::_ALLGATHER_BASE);
  call.set_piece(input, false);
  call.request().input = call.input(input);
  call.request().output = call.output(output);
  return started(call.start(engine_, timeout(options.timeout), planned_.get()));
}

NativeBackend::Work NativeBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                   const c10d::AllgatherOptions& options) {
  if (outputs.size() != inputs.size() || inputs.empty()) {
    throw UsageError(
        "all_gather_into_tensor_coalesced: as many outputs as inputs are needed, and at least one");
  }
  CoalescedWork::Parts parts;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    parts.push_back(_allgather_base(outputs[i], inputs[i], options));
  return coalesce(getRank(), OpType::COALESCED, std::move(parts));
}

NativeBackend::Work NativeBackend::gather(TensorLists& outputs, Tensors& inputs,
                                          const c10d::GatherOptions& options) {
  Call call(OperationKind::gather, OpType::GATHER);
  const at::Tensor& tensor = only(inputs, "gather");
  call.set_piece(tensor, false);
  call.request().root = static_cast<int>(options.rootRank);
  call.request().input = call.input(tensor);
  if (getRank() == options.rootRank) {
    call.request().output = call.outputs(only_list(outputs, getSize(), tensor, "gather"));
  }
  return started(call.start(engine_, timeout(options.timeout)));
}

NativeBackend::Work NativeBackend::scatter(Tensors& outputs, TensorLists& inputs,
                                           const c10d::ScatterOptions& options) {
  Call call(OperationKind::scatter, OpType::SCATTER);
  const at::Tensor& tensor = only(outputs, "scatter");
  call.set_piece(tensor, false);
  call.request().root = static_cast<int>(options.rootRank);
  call.request().output = call.output(tensor);
  if (getRank() == options.rootRank) {
    call.request().input = call.inputs(only_list(inputs, getSize(), tensor, "scatter"));
  }
  return started(call.start(engine_, timeout(options.timeout)));
}

NativeBackend::Work NativeBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                  const c10d::ReduceScatterOptions& options) {
  Call call(OperationKind::reduce_scatter, OpType::REDUCE_SCATTER);
  const at::Tensor& tensor = only(outputs, "reduce_scatter");
  call.set_piece(tensor, true);
  call.request().reduction = reduction_of(options.reduceOp, tensor.scalar_type());
  call.request().input = call.inputs(only_list(inputs, getSize(), tensor, "reduce_scatter"));
  call.request().output = call.output(tensor);
  return started(call.start(engine_, timeout(options.timeout), planned_.get()));
}

NativeBackend::Work NativeBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                        const c10d::ReduceScatterOptions& options) {
  check_divides(input, output, getSize(), "reduce_scatter_tensor");
  Call call(OperationKind::reduce_scatter, OpType::_REDUCE_SCATTER_BASE);
  call.set_piece(output, true);
  call.request().reduction = reduction_of(options.reduceOp, output.scalar_type());
  call.request().input = call.input(input);
  call.request().output = call.output(output);
  return started(call.start(engine_, timeout(options.timeout), planned_.get()));
}

NativeBackend::Work NativeBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  if (outputs.size() != inputs.size() || inputs.empty()) {
    throw UsageError(
        "reduce_scatter_tensor_coalesced: as many outputs as inputs are needed, and at least one");
  }
  CoalescedWork::Parts parts;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    parts.push_back(_reduce_scatter_base(outputs[i], inputs[i], options));
  return coalesce(getRank(), OpType::REDUCE_SCATTER_TENSOR_COALESCED, std::move(parts));
}

// Pieces of an all_to_all may all differ, and the peers' sizes decide how many chunks there are, so sizes go
// first.
NativeBackend::Work NativeBackend::exchange(const Tensors& outputs, const Tensors& inputs,
                                            std::chrono::milliseconds of_call) {
  check_one_each(outputs, inputs, getSize(), "all_to_all");
  const auto size = static_cast<std::size_t>(getSize());
  std::vector<std::uint64_t> sent(size);
  std::vector<std::uint64_t> expected(size);
  for (std::size_t r = 0; r < size; ++r) {
    sent[r] = inputs[r].nbytes();
    expected[r] = outputs[r].nbytes();
  }
  std::vector<std::uint64_t> all(size * size);
  CollectiveRequest sizes{.kind = OperationKind::all_gather, .type = DType::int64, .elements = size};
  sizes.input.base = reinterpret_cast<std::byte*>(sent.data());
  sizes.output = {reinterpret_cast<std::byte*>(all.data()), size * sizeof(std::uint64_t), {}};
  engine_->wait(engine_->start(sizes), {Deadline::after(timeout(of_call)), nullptr});
  for (std::size_t r = 0; r < size; ++r) {
    const std::uint64_t comes = all[r * size + static_cast<std::size_t>(getRank())];
    if (comes != expected[r]) {
      const std::string reason = str("all_to_all: rank ", getRank(), " expects ", expected[r],
                                     " bytes from rank ", r, ", which sends ", comes);
      engine_->abort(reason);
      throw MismatchError(reason, {static_cast<int>(r)});
    }
  }
  Call call(OperationKind::all_to_all, OpType::ALLTOALL);
  call.request().type = DType::uint8;
  call.request().elements = *std::max_element(all.begin(), all.end());
  call.request().input = call.inputs(inputs);
  call.request().output = call.outputs(outputs);
  call.request().input_bytes = sent;
  call.request().output_bytes = expected;
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
  const ElementType element = element_type(tensor.data.scalar_type(), "send", false);
  NativeWork::Pending pending;
  pending.message = engine_->start_send({.peer = destination,
                                         .tag = tag,
                                         .type = element.type,
                                         .data = tensor.bytes(),
                                         .bytes = tensor.data.nbytes()});
  pending.is_send = true;
  pending.alive = {tensor.data};
  pending.timeout = timeout_;
  return started(c10::make_intrusive<NativeWork>(engine_, OpType::SEND, std::move(pending)));
}

NativeBackend::Work NativeBackend::recv(Tensors& tensors, int source, int tag) {
  const DenseTensor tensor = dense(only(tensors, "recv"), "recv", false);
  const ElementType element = element_type(tensor.data.scalar_type(), "recv", false);
  NativeWork::Pending pending;
  pending.message = engine_->start_receive({.peer = source,
                                            .tag = tag,
                                            .type = element.type,
                                            .data = tensor.bytes(),
                                            .bytes = tensor.data.nbytes()});
  pending.alive = {tensor.data};
  pending.results = tensors;
  pending.finish = [tensor] { tensor.copy_back(); };
  pending.timeout = timeout_;
  pending.source_rank = source;
  return started(c10::make_intrusive<NativeWork>(engine_, OpType::RECV, std::move(pending)));
}

NativeBackend::Work NativeBackend::recvAnysource(Tensors& tensors, int tag) {
  return recv(tensors, engine_->wait_any_source(tag, {Deadline::after(timeout_.load()), nullptr}), tag);
}

NativeBackend::Work NativeBackend::barrier(const c10d::BarrierOptions& options) {
  return started(Call(OperationKind::barrier, OpType::BARRIER).start(engine_, timeout(options.timeout)));
}

c10::intrusive_ptr<c10d::Backend> make_native_backend(const BackendRequest& request) {
  if (request.size > 1) register_cpu_allocations();
  shared_memory::GroupOptions options;
  options.group_name = request.group_name;
  options.rank = request.rank;
  options.size = request.size;
  options.world_ranks = request.world_ranks;
  options.timeout = request.timeout;
  return c10::make_intrusive<NativeBackend>(request.store, options, request.reproducible);
}

}  // namespace rondo
