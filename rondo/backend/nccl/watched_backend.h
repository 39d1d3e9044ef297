#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rondo/backend/engine/failure_record.h"
#include "rondo/backend/engine/request.h"
#include "rondo/backend/nccl/device_watch.h"

namespace rondo {

// An engine between accelerators with operations that a DeviceWatch watches: they fail instead of waiting
// forever for a lost peer. Errors are PeerLostError and TimeoutError, which name ranks; the first one is
// final. Threads are those of the engine.
class WatchedBackend final : public c10d::Backend, public StreamOrderedEngine {
 public:
  using Work = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<std::vector<at::Tensor>>;

  // `control` is the CPU engine that the group uses beside `device`.
  WatchedBackend(const BackendRequest& request, std::shared_ptr<DeviceWatch> watch,
                 const c10::intrusive_ptr<c10d::Backend>& device,
                 const c10::intrusive_ptr<c10d::Backend>& control);
  ~WatchedBackend() override;

  void throw_if_failed() override;
  bool has_lost_results() override;

  const std::string getBackendName() const override { return device_->getBackendName(); }
  void setTimeout(std::chrono::milliseconds timeout) override;
  c10::intrusive_ptr<Options> getBackendOptions() override { return device_->getBackendOptions(); }
  void setSequenceNumberForGroup() override { device_->setSequenceNumberForGroup(); }
  std::uint64_t getSequenceNumberForGroup() override { return device_->getSequenceNumberForGroup(); }
  bool supportsTensorAlloc(c10::DeviceIndex index) override { return device_->supportsTensorAlloc(index); }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override {
    return device_->allocateTensor(size, options);
  }
  void abort() override { device_->abort(); }
  void shutdown() override;

  bool supportsCoalescing() const override { return device_->supportsCoalescing(); }
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

 private:
  template <class Start>
  Work started(const char* name, const at::Tensor& tensor, std::chrono::milliseconds timeout, Start start);
  template <class Start>
  Work message(const char* name, const at::Tensor& tensor, int peer, Start start);
  template <class Start>
  Work under_watch(std::string name, c10::Device device, std::vector<int> peers, Duration timeout,
                   Start start);

  const std::shared_ptr<DeviceWatch> watch_;
  const c10::intrusive_ptr<c10d::Backend> device_;
  const std::shared_ptr<WatchedGroup> group_;
  std::atomic<Duration> timeout_;

  // Messages between startCoalescing and endCoalescing. Used only by the thread that uses the group.
  struct Coalesced {
    std::optional<c10::Device> device;  // empty: no messages so far
    std::vector<int> peers;
  };
  std::optional<Coalesced> coalescing_;
};

}  // namespace rondo
