#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <memory>
#include <mutex>
#include <optional>

#include "rondo/backend/engine/failing_engine.h"
#include "rondo/backend/engine/request.h"
#include "rondo/backend/memory/registered_memory.h"
#include "rondo/backend/native/coalesced_work.h"
#include "rondo/backend/native/planned_collectives.h"
#include "rondo/collective/shared_memory/engine.h"
#include "rondo/memory/tracker.h"

namespace rondo {

// Of the native engine; in a process without registered memory, parameters are not in place.
inline constexpr EngineTraits kNativeTraits = {.progresses_in_background = false,
                                               .registered_memory = true,
                                               .parameters_in_place = true,
                                               .deterministic = true,
                                               .device_tensors = true};

// The shared-memory engine as a c10d::Backend, named "rondo": for the ranks of one host, processes or
// threads.
//
// Operations start at once and are asynchronous: they move on in this and every other call into the backend,
// and by the engine's helper thread while the rank is elsewhere, so that they end whether or not somebody
// keeps the Work or waits for it. Until then the engine keeps the tensors; the backend's destruction waits a
// few seconds for what is under way (Engine::close). Futures complete, and run their callbacks, on the thread
// that makes the operation end. So it is with collectives that RONDO_ALGORITHM or a measured table gives to
// a plan (PlannedCollectives), only that a call without asyncOp returns at their end. Tensors may have any
// strides and live on any device; those that are not dense CPU tensors are copied on the way in and out.
// Reductions add in rank order on every rank.
//
// Any thread may call; collectives must be started in the same order on all ranks. Errors are those of
// shared_memory::Engine; the first one is final.
class NativeBackend final : public ExtendedBackend, public FailingEngine {
 public:
  // `deterministic`: plans too (RONDO_ALGORITHM) add in rank order.
  NativeBackend(const c10::intrusive_ptr<c10d::Store>& store, const shared_memory::GroupOptions& options,
                bool deterministic = false);

  EngineTraits traits() const override;
  void all_reduce_now(const at::Tensor& tensor, const c10d::ReduceOp& op) override;
  std::optional<std::uint64_t> publish(const at::Tensor& tensor) override;
  void* published(int rank, std::uint64_t place) override;
  void close() override;
  std::exception_ptr cause_of(const std::exception_ptr& error) noexcept override;
  void shutdown() override { close(); }
  // Also makes all waiting and later calls of the peers fail.
  void abort() override;
  void fail(const std::exception_ptr& error) override;

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
  Duration timeout(std::chrono::milliseconds of_call) const;
  // Every operation passes through here once it is under way.
  Work started(Work work);
  // Blocking: it has ended when it returns.
  Work sparse_allreduce(Tensors& tensors, const c10d::AllreduceOptions& options);
  Work reduce_scatter_unequal(const at::Tensor& output, const Tensors& pieces,
                              const c10d::ReduceScatterOptions& options);
  Work all_gather_unequal(const Tensors& pieces, const at::Tensor& input,
                          const c10d::AllgatherOptions& options);
  Work receive(Tensors& tensors, int source, int tag, c10d::OpType type);
  Work exchange(const Tensors& outputs, const Tensors& inputs, std::chrono::milliseconds of_call);

  std::shared_ptr<shared_memory::Engine> engine_;
  std::shared_ptr<PlannedCollectives> planned_;  // null: every collective is the engine's
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
