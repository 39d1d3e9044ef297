#include "rondo/backend/nccl/combined_backend.h"

#include <algorithm>
#include <thread>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

constexpr auto kCardPoll = std::chrono::milliseconds(1);

std::string card_key(int rank) { return str("card of rank ", rank); }

std::string rank_name(const BackendRequest& request, int rank) {
  const auto at = static_cast<std::size_t>(rank);
  std::string name = std::to_string(at < request.world_ranks.size() ? request.world_ranks[at] : rank);
  if (at < request.host_names.size()) name += str(" on ", request.host_names[at]);
  return name;
}

}  // namespace

CombinedBackend::CombinedBackend(const BackendRequest& request, Communicator control, Communicator device,
                                 CardOf card_of)
    : ExtendedBackend(request.rank, request.size),
      request_(request),
      control_(std::move(control)),
      device_(std::move(device)),
      card_of_(std::move(card_of)),
      cards_(static_cast<std::size_t>(request.size)) {}

EngineTraits CombinedBackend::traits() const {
  EngineTraits traits = control_.traits;  // traits of CPU memory
  traits.progresses_in_background = device_.traits.progresses_in_background;
  traits.deterministic = control_.traits.deterministic && device_.traits.deterministic;
  traits.all_to_all = control_.traits.all_to_all && device_.traits.all_to_all;
  traits.device_tensors = true;
  traits.honours_tags = control_.traits.honours_tags && device_.traits.honours_tags;
  return traits;
}

c10d::Backend& CombinedBackend::engine_for(std::initializer_list<const Tensors*> lists, const char* operation,
                                           const std::vector<int>& peers) {
  std::optional<c10::Device> device;
  for (const Tensors* list : lists) {
    for (const at::Tensor& tensor : *list) {
      if (!tensor.defined()) continue;
      if (device && *device != tensor.device()) {
        throw UsageError(rondo::str(operation, ": the tensors of one call are on ", device->str(), " and ",
                                    tensor.device().str(), "; move them to one device"));
      }
      device = tensor.device();
    }
  }
  if (!device || device->is_cpu()) return *control_.backend;
  if (card_of_) check_cards(*device, peers);
  return *device_.backend;
}

c10d::Backend& CombinedBackend::engine_for(const TensorLists& lists, const Tensors& tensors,
                                           const char* operation) {
  Tensors all = tensors;
  for (const Tensors& list : lists) all.insert(all.end(), list.begin(), list.end());
  return engine_for({&all}, operation);
}

// Waits for the card of a rank. The peer may be lost before its first call.
void CombinedBackend::await_card(int rank) {
  const Deadline deadline = Deadline::after(request_.timeout);
  while (!request_.store->check({card_key(rank)})) {
    throw_if_failed();
    if (deadline.passed()) {
      throw TimeoutError(rondo::str("group '", request_.group_name, "': rank ", rank_name(request_, rank),
                                    " has not started its first operation on a device tensor within ",
                                    to_string(request_.timeout)),
                         {rank});
    }
    std::this_thread::sleep_for(kCardPoll);
  }
}

void CombinedBackend::check_cards(c10::Device device, const std::vector<int>& peers) {
  const std::lock_guard lock(mutex_);
  if (knows_all_cards_) return;
  if (!shared_card_.empty()) throw UsageError(shared_card_);
  const auto learn = [&](int rank) {
    std::string& card = cards_[static_cast<std::size_t>(rank)];
    if (!card.empty()) return;
    if (rank == getRank()) {
      card = card_of_(device);
      request_.store->set(card_key(rank), card);
    } else {
      await_card(rank);
      card = request_.store->get_to_str(card_key(rank));
    }
    const auto same = std::find(cards_.begin(), cards_.end(), card);
    const auto other = static_cast<int>(same - cards_.begin());
    const auto next = std::find(same + 1, cards_.end(), card);
    if (next == cards_.end()) return;
    shared_card_ = str("group '", request_.group_name, "': rank ", rank_name(request_, other), " and rank ",
                       rank_name(request_, static_cast<int>(next - cards_.begin())), " both use ", card,
                       ", but this engine supports one rank per GPU; start at most as many ranks on a host "
                       "as it has GPUs, or use --backend native");
    throw UsageError(shared_card_);
  };
  learn(getRank());
  if (peers.empty()) {
    for (int rank = 0; rank < getSize(); ++rank) learn(rank);
    knows_all_cards_ = true;
  }
  for (const int peer : peers) {
    // The engine refuses an invalid peer.
    if (peer >= 0 && peer < getSize()) learn(peer);
  }
}

void CombinedBackend::all_reduce_now(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  const Tensors tensors{tensor};
  c10d::Backend& engine = engine_for({&tensors}, "all_reduce");
  if (auto* const own = dynamic_cast<ExtendedBackend*>(&engine)) return own->all_reduce_now(tensor, op);
  ExtendedBackend::all_reduce_now(tensor, op);
}

std::optional<std::uint64_t> CombinedBackend::publish(const at::Tensor& tensor) {
  ExtendedBackend* const engine = extended(control_.backend);
  return engine != nullptr && tensor.is_cpu() ? engine->publish(tensor) : std::nullopt;
}

void* CombinedBackend::published(int rank, std::uint64_t place) {
  ExtendedBackend* const engine = extended(control_.backend);
  return engine != nullptr ? engine->published(rank, place) : nullptr;
}

std::map<std::string, at::Tensor> CombinedBackend::memory() {
  ExtendedBackend* const engine = extended(control_.backend);
  return engine != nullptr ? engine->memory() : ExtendedBackend::memory();
}

std::string CombinedBackend::restore_memory(const std::map<std::string, at::Tensor>& memory) {
  ExtendedBackend* const engine = extended(control_.backend);
  return engine != nullptr ? engine->restore_memory(memory) : ExtendedBackend::restore_memory(memory);
}

void CombinedBackend::close() {
  for (const Communicator* each : {&device_, &control_}) {
    if (ExtendedBackend* const engine = extended(each->backend)) {
      engine->close();
    } else {
      each->backend->shutdown();
    }
  }
}

void CombinedBackend::abort() {
  device_.backend->abort();
  control_.backend->abort();
}

void CombinedBackend::setTimeout(std::chrono::milliseconds timeout) {
  control_.backend->setTimeout(timeout);
  device_.backend->setTimeout(timeout);
}

c10::intrusive_ptr<c10d::Backend::Options> CombinedBackend::getBackendOptions() {
  return control_.backend->getBackendOptions();
}

std::uint64_t CombinedBackend::getSequenceNumberForGroup() {
  return control_.backend->getSequenceNumberForGroup() + device_.backend->getSequenceNumberForGroup();
}

bool CombinedBackend::supportsTensorAlloc(c10::DeviceIndex index) {
  return control_.backend->supportsTensorAlloc(index);
}

at::Tensor CombinedBackend::allocateTensor(long size, at::TensorOptions options) {
  return (options.device().is_cpu() ? control_ : device_).backend->allocateTensor(size, options);
}

bool CombinedBackend::supportsCoalescing() const { return device_.backend->supportsCoalescing(); }

void CombinedBackend::startCoalescing() { device_.backend->startCoalescing(); }

CombinedBackend::Work CombinedBackend::endCoalescing() { return device_.backend->endCoalescing(); }

CombinedBackend::Work CombinedBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  return engine_for({&tensors}, "broadcast").broadcast(tensors, options);
}

CombinedBackend::Work CombinedBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  return engine_for({&tensors}, "all_reduce").allreduce(tensors, options);
}

CombinedBackend::Work CombinedBackend::allreduce_coalesced(Tensors& tensors,
                                                           const c10d::AllreduceCoalescedOptions& options) {
  return engine_for({&tensors}, "all_reduce_coalesced").allreduce_coalesced(tensors, options);
}

CombinedBackend::Work CombinedBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  return engine_for({&tensors}, "reduce").reduce(tensors, options);
}

CombinedBackend::Work CombinedBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                                 const c10d::AllgatherOptions& options) {
  return engine_for(outputs, inputs, "all_gather").allgather(outputs, inputs, options);
}

CombinedBackend::Work CombinedBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                       const c10d::AllgatherOptions& options) {
  const Tensors tensors{output, input};
  return engine_for({&tensors}, "all_gather_into_tensor")._allgather_base(output, input, options);
}

CombinedBackend::Work CombinedBackend::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                                           const c10d::AllgatherOptions& options) {
  return engine_for(outputs, inputs, "all_gather_coalesced").allgather_coalesced(outputs, inputs, options);
}

CombinedBackend::Work CombinedBackend::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  return engine_for({&outputs, &inputs}, "all_gather_into_tensor_coalesced")
      .allgather_into_tensor_coalesced(outputs, inputs, options);
}

CombinedBackend::Work CombinedBackend::gather(TensorLists& outputs, Tensors& inputs,
                                              const c10d::GatherOptions& options) {
  return engine_for(outputs, inputs, "gather").gather(outputs, inputs, options);
}

CombinedBackend::Work CombinedBackend::scatter(Tensors& outputs, TensorLists& inputs,
                                               const c10d::ScatterOptions& options) {
  return engine_for(inputs, outputs, "scatter").scatter(outputs, inputs, options);
}

CombinedBackend::Work CombinedBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                      const c10d::ReduceScatterOptions& options) {
  return engine_for(inputs, outputs, "reduce_scatter").reduce_scatter(outputs, inputs, options);
}

CombinedBackend::Work CombinedBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                            const c10d::ReduceScatterOptions& options) {
  const Tensors tensors{output, input};
  return engine_for({&tensors}, "reduce_scatter_tensor")._reduce_scatter_base(output, input, options);
}

CombinedBackend::Work CombinedBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  return engine_for({&outputs, &inputs}, "reduce_scatter_tensor_coalesced")
      .reduce_scatter_tensor_coalesced(outputs, inputs, options);
}

CombinedBackend::Work CombinedBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                     std::vector<std::int64_t>& output_splits,
                                                     std::vector<std::int64_t>& input_splits,
                                                     const c10d::AllToAllOptions& options) {
  const Tensors tensors{output, input};
  return engine_for({&tensors}, "all_to_all")
      .alltoall_base(output, input, output_splits, input_splits, options);
}

CombinedBackend::Work CombinedBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                                const c10d::AllToAllOptions& options) {
  return engine_for({&outputs, &inputs}, "all_to_all").alltoall(outputs, inputs, options);
}

CombinedBackend::Work CombinedBackend::send(Tensors& tensors, int destination, int tag) {
  return engine_for({&tensors}, "send", {destination}).send(tensors, destination, tag);
}

CombinedBackend::Work CombinedBackend::recv(Tensors& tensors, int source, int tag) {
  return engine_for({&tensors}, "recv", {source}).recv(tensors, source, tag);
}

CombinedBackend::Work CombinedBackend::recvAnysource(Tensors& tensors, int tag) {
  return engine_for({&tensors}, "recv", {getRank()}).recvAnysource(tensors, tag);
}

CombinedBackend::Work CombinedBackend::barrier(const c10d::BarrierOptions& options) {
  return control_.backend->barrier(options);
}

void CombinedBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_for_all_ranks) {
  control_.backend->monitoredBarrier(options, wait_for_all_ranks);
}

}  // namespace rondo
