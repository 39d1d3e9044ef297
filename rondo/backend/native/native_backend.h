#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <memory>
#include <mutex>
#include <optional>

#include "rondo/backend/native/coalesced_work.h"
#include "rondo/backend/native/planned_collectives.h"
#include "rondo/backend/native/registered_memory.h"
#include "rondo/backend/registry.h"
#include "rondo/collective/shared_memory/engine.h"
#include "rondo/memory/ledger.h"

namespace rondo {

// The shared-memory engine as a c10d::Backend, named "rondo": for the ranks of one host, processes or
// threads.
//
// Collectives start at once and are asynchronous, but nothing runs them in the background: they move on in
// this and every other call into the backend, and finish in Work::wait(). Tensors may have any strides and
// live on any device; those that are not dense CPU tensors are copied on the way in and out. Reductions add
// in rank order on every rank.
//
// Any thread may call; collectives must be started in the same order on all ranks. Errors are those of
// shared_memory::Engine; the first one is final.
class NativeBackend final : public c10d::Backend {
 public:
  // `reproducible`: plans too (RONDO_ALGORITHM) add in rank order.
  NativeBackend(const c10::intrusive_ptr<c10d::Store>& store, const shared_memory::GroupOptions& options,
                bool reproducible = false);

  // For strategies that talk to the engine directly about registered tensors.
  shared_memory::Engine& engine() const { return *engine_; }
  // all_reduce in place that returns when it is done: the shortest way to the engine, without a Work. Any
  // tensor.
  void all_reduce_now(const at::Tensor& tensor, const c10d::ReduceOp& op);
  // Keeps a tensor that peers use without asking until the backend is destroyed.
  void keep_until_closed(at::Tensor tensor);
  // Every later call fails, saying that the group was shut down. Peers are not disturbed.
  void close();
  void shutdown() override { close(); }
  // Also makes all waiting and later calls of the peers fail.
  void abort() override { engine_->abort("the group was aborted by its caller"); }

  const std::string getBackendName() const override { return "rondo"; }
  void setTimeout(std::chrono::milliseconds timeout) override;
  c10::intrusive_ptr<Options> getBackendOptions() override;
  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override { return engine_->sequence(); }

  // Tensors for communication, in registered memory. Contents unspecified.
  bool supportsTensorAlloc(c10::DeviceIndex) override { return true; }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override {
    return empty_registered({size}, options);
  }

  using Work = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<std::vector<at::Tensor>>;

  // Operations between the two start at once, as always; endCoalescing returns one Work for all of them.
  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  Work endCoalescing() override;

  Work broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  Work allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  Work allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  Work reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  Work allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  Work _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
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
  Duration timeout(std::chrono::milliseconds of_call) const;
  // Every operation passes through here once it is under way.
  Work started(Work work);
  Work exchange(const Tensors& outputs, const Tensors& inputs, std::chrono::milliseconds of_call);

  std::shared_ptr<shared_memory::Engine> engine_;
  std::unique_ptr<PlannedCollectives> planned_;  // null: every collective is the engine's
  std::atomic<Duration> timeout_;
  MemoryCharge staging_;         // this rank's segment, which the engine owns
  std::mutex coalescing_mutex_;  // protects coalescing_
  std::optional<CoalescedWork::Parts> coalescing_;
  std::mutex kept_mutex_;  // protects kept_
  std::vector<at::Tensor> kept_;
};

// Builds a NativeBackend and registers CPU allocations; the factory behind `--backend native`.
c10::intrusive_ptr<c10d::Backend> make_native_backend(const BackendRequest& request);

}  // namespace rondo
