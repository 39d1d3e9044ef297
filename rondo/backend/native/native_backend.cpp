#include "rondo/backend/native/native_backend.h"

#include <optional>
#include <utility>

#include "rondo/backend/engine/engine_text.h"
#include "rondo/backend/engine/failure_record.h"
#include "rondo/backend/engine/store_adapter.h"
#include "rondo/backend/memory/registered_memory.h"
#include "rondo/backend/native/native_work.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/channel/channel.h"
#include "rondo/channel/failure.h"
#include "rondo/collective/shared_memory/layout.h"

namespace rondo {
namespace {

using c10d::OpType;
using shared_memory::Engine;

shared_memory::GroupOptions options_of(const BackendRequest& request) {
  shared_memory::GroupOptions options;
  options.group_name = request.group_name;
  options.rank = request.rank;
  options.size = request.size;
  options.world_ranks = request.world_ranks;
  options.timeout = request.timeout;
  if (request.job_store) {
    // A job without other groups needs only the failures that peers record in shared memory.
    options.cause_of = [record = FailureRecord({}, request.job_store, request.world_ranks)](
                           const std::exception_ptr& error) mutable { return record.first(error); };
  }
  return options;
}

}  // namespace

NativeBackend::NativeBackend(const BackendRequest& request)
    : RequestBackend(request),
      request_(request),
      staging_(MemoryCategory::communication, Bytes{shared_memory::RankSegment::bytes(request.size)}) {
  if (request.size > 1) register_cpu_allocations();
  request_.store.reset();
  StoreFromC10d view(request.store);
  engine_ = std::make_shared<Engine>(view, options_of(request), process_arena());
  scheduled_ = ScheduledCollectives::make(view, engine_, request.deterministic);
  // The rank that keeps the store may end as soon as its constructor has returned.
  engine_->finish_rendezvous();
}

// Schedules may add in another order unless the group is deterministic.
EngineTraits NativeBackend::traits() const {
  EngineTraits traits = kNativeTraits;
  traits.parameters_in_place = registers_allocations();
  traits.deterministic = scheduled_ == nullptr || scheduled_->adds_in_rank_order();
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
  if (scheduled_ != nullptr) scheduled_->close(reason);
  engine_->close(reason);
}

std::exception_ptr NativeBackend::cause_of(const std::exception_ptr& error) noexcept {
  const auto& cause = engine_->options().cause_of;
  return cause ? cause(error) : error;
}

void NativeBackend::abort() {
  constexpr const char* kReason = "the group was aborted by its caller";
  engine_->abort(kReason);
  if (scheduled_ != nullptr) scheduled_->abort(kReason);
}

void NativeBackend::fail(const std::exception_ptr& error) {
  engine_->abort(error);
  if (scheduled_ != nullptr) scheduled_->abort(describe_failure(error, getRank()).text);
}

c10::intrusive_ptr<c10d::Backend> NativeBackend::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                       const std::vector<int>& ranks,
                                                       const c10::intrusive_ptr<Options>& options) {
  const auto part = request_of_part(request_, ranks, store, *options);
  return part ? c10::make_intrusive<NativeBackend>(*part) : nullptr;
}

void NativeBackend::startCoalescing() {
  engine_->check_process();
  RequestBackend::startCoalescing();
}

void NativeBackend::all_reduce_now(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  if (tensor.layout() != at::kStrided || premultiplies(op))
    return ExtendedBackend::all_reduce_now(tensor, op);
  const ElementType element = element_type(tensor.scalar_type(), name(OperationKind::all_reduce), true);
  if (!tensor.is_contiguous()) check_overlaps({.outputs = {&tensor, 1}}, name(OperationKind::all_reduce));
  CollectiveRequest request;
  request.kind = OperationKind::all_reduce;
  request.type = element.type;
  request.reduction = reduction_of(op, tensor.scalar_type());
  // With one rank a device tensor already contains the result; a closed group still throws.
  if (getSize() == 1 && !tensor.is_cpu()) {
    barrier({})->wait();
    return;
  }
  request.elements = static_cast<std::uint64_t>(tensor.numel()) * element.per_element;
  const Duration limit = timeout();
  const auto run = [&](std::byte* bytes, const auto& memory) {
    request.input.base = request.output.base = bytes;
    if (scheduled_ == nullptr || !scheduled_->run(request, Deadline::after(limit)))
      engine_->run(std::move(request), limit, memory);
  };
  if (is_dense(tensor)) return run(static_cast<std::byte*>(tensor.data_ptr()), tensor);
  const DenseTensor buffer = dense(tensor, name(OperationKind::all_reduce), true);
  run(buffer.bytes(), buffer);
  buffer.copy_back();
}

// If the caller waits, runs a schedule to its end. The Work reports an error of an operation's first step.
NativeBackend::Work NativeBackend::start(RequestCall&& call, Duration limit, bool caller_waits) {
  NativeWork::Pending pending;
  pending.operation = std::make_shared<NativeOperation>(std::move(call.memory));
  pending.timeout = limit;
  const Deadline deadline = Deadline::after(limit);
  std::optional<std::uint64_t> number;
  if (scheduled_ != nullptr && call.regular)
    number = scheduled_->start(call.request, pending.operation, deadline, caller_waits);
  if (number) {
    pending.schedules = scheduled_;
    pending.scheduled = *number;
    if (caller_waits) scheduled_->wait(*number, Deadline::never());
  } else {
    try {
      pending.sequence = engine_->start(std::move(call.request), pending.operation, deadline);
    } catch (const std::exception&) {
      if (!pending.operation->over()) throw;
    }
  }
  return c10::make_intrusive<NativeWork>(engine_, call.type, std::move(pending));
}

NativeBackend::Work NativeBackend::start_message(StartMessage start, const DenseTensor& tensor, int peer,
                                                 int tag, OpType type, OperationMemory&& memory) {
  NativeWork::Pending pending;
  pending.operation = std::make_shared<NativeOperation>(std::move(memory));
  pending.timeout = timeout();
  const DType elements = element_type(tensor.data.scalar_type(), "message", false).type;
  try {
    pending.message = (*engine_.*start)({.peer = peer,
                                         .tag = tag,
                                         .type = elements,
                                         .data = tensor.bytes(),
                                         .bytes = tensor.data.nbytes(),
                                         .owner = pending.operation});
  } catch (const std::exception&) {
    if (!pending.operation->over()) throw;
  }
  return c10::make_intrusive<NativeWork>(engine_, type, std::move(pending));
}

NativeBackend::Work NativeBackend::start_send(const at::Tensor& given, int destination, int tag) {
  const DenseTensor tensor = dense(given, "send");
  return start_message(&Engine::start_send, tensor, destination, tag, OpType::SEND, {.alive = {tensor.data}});
}

NativeBackend::Work NativeBackend::start_receive(const at::Tensor& given, int source, int tag) {
  const DenseTensor tensor = dense(given, "recv", false);
  OperationMemory memory{.alive = {tensor.data}, .results = {given}};
  if (tensor.copy_of.defined()) memory.copied_back.push_back(tensor);
  const OpType type = source == shared_memory::kAnyRank ? OpType::RECVANYSOURCE : OpType::RECV;
  return start_message(&Engine::start_receive, tensor, source, tag, type, std::move(memory));
}

void NativeBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool name_all_missing) {
  const bool unset = options.timeout == c10d::kUnsetTimeout;
  const Duration limit = unset ? timeout() : bounded_duration(options.timeout);
  engine_->monitored_barrier(limit, name_all_missing);
}

RegisteredBackend NativeEngineFactory::engine(const Options& /*none*/) {
  return {[](const BackendRequest& request) { return c10::make_intrusive<NativeBackend>(request); },
          kNativeTraits, true};
}

}  // namespace rondo
