#pragma once

#include <functional>
#include <initializer_list>
#include <mutex>
#include <string>
#include <vector>

#include "rondo/backend/engine/failure_record.h"
#include "rondo/backend/engine/request.h"

namespace rondo {

// Two engines as one: calls with CPU tensors, and those without tensors, use `control`; calls with tensors of
// a device use `device`. So an engine that supports accelerator memory only serves callers whose counts,
// objects and barriers are on the CPU. c10d's "cpu:gloo,cuda:nccl" does the same for a ProcessGroup.
//
// The tensors of one call are on the CPU or on one device; otherwise the call throws a UsageError naming both
// devices. Errors, deadlines and threads are those of the engine that runs the call.
class CombinedBackend final : public ExtendedBackend, public StreamOrderedEngine {
 public:
  // A function that returns the physical card of a device, the same text in every process that uses it.
  using CardOf = std::function<std::string(c10::Device)>;

  // With `card_of`, every rank must use a card of its own: the first call with a device tensor throws a
  // UsageError that names two ranks with the same card. Ranks exchange their cards through request.store, and
  // wait for each other up to request.timeout.
  CombinedBackend(const BackendRequest& request, Communicator control, Communicator device,
                  CardOf card_of = {});

  using Work = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<std::vector<at::Tensor>>;

  EngineTraits traits() const override;
  void all_reduce_now(const at::Tensor& tensor, const c10d::ReduceOp& op) override;
  std::optional<std::uint64_t> publish(const at::Tensor& tensor) override;
  void* published(int rank, std::uint64_t place) override;
  std::map<std::string, at::Tensor> memory() override;
  std::string restore_memory(const std::map<std::string, at::Tensor>& memory) override;
  void close() override;
  void shutdown() override { close(); }
  void abort() override;
  void throw_if_failed() override { rondo::throw_if_failed(*device_.backend); }
  bool has_lost_results() override { return rondo::has_lost_results(*device_.backend); }

  const std::string getBackendName() const override { return "combined"; }
  void setTimeout(std::chrono::milliseconds timeout) override;
  c10::intrusive_ptr<Options> getBackendOptions() override;
  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override;
  bool supportsTensorAlloc(c10::DeviceIndex index) override;
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;

  // Calls with device tensors between the two form one operation of the device's engine. Calls with CPU
  // tensors start at once, and each has its own Work.
  bool supportsCoalescing() const override;
  void startCoalescing() override;
  Work endCoalescing() override;

  Work broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  Work allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  Work allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  Work reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  Work allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  Work _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  Work allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                           const c10d::AllgatherOptions& options) override;
  Work allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                       const c10d::AllgatherOptions& options) override;
  Work gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  Work scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) override;
  Work reduce_scatter(Tensors& outputs, TensorLists& inputs,
                      const c10d::ReduceScatterOptions& options) override;
  Work _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                            const c10d::ReduceScatterOptions& options) override;
  Work reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                       const c10d::ReduceScatterOptions& options) override;
  Work alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_splits,
                     std::vector<std::int64_t>& input_splits, const c10d::AllToAllOptions& options) override;
  Work alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  Work send(Tensors& tensors, int destination, int tag) override;
  Work recv(Tensors& tensors, int source, int tag) override;
  Work recvAnysource(Tensors& tensors, int tag) override;
  Work barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_for_all_ranks) override;

 private:
  // Returns the engine for a call with these tensors. `peers` are the ranks that take part; empty: all ranks.
  c10d::Backend& engine_for(std::initializer_list<const Tensors*> lists, const char* operation,
                            const std::vector<int>& peers = {});
  c10d::Backend& engine_for(const TensorLists& lists, const Tensors& tensors, const char* operation);
  // Throws UsageError if a peer uses the card of this rank.
  void check_cards(c10::Device device, const std::vector<int>& peers);
  void await_card(int rank);

  const BackendRequest request_;
  const Communicator control_;
  const Communicator device_;
  const CardOf card_of_;
  std::mutex mutex_;                // protects the fields below
  std::vector<std::string> cards_;  // by rank; empty: unknown
  bool knows_all_cards_ = false;    // whether every rank is known to use a different card
  std::string shared_card_;         // message about two ranks with one card; empty: none
};

// Makes an engine that uses the result of `device`, with these traits, for device tensors, and the engine
// that "auto" selects for all others. `card_of` is passed to CombinedBackend.
RegisteredBackend beside_control(BackendFactory device, const EngineTraits& traits,
                                 CombinedBackend::CardOf card_of = {});

}  // namespace rondo
