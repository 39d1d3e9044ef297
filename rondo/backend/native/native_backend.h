#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "rondo/backend/engine/failure_record.h"
#include "rondo/backend/engine/request.h"
#include "rondo/backend/memory/registered_memory.h"
#include "rondo/backend/native/scheduled_collectives.h"
#include "rondo/backend/requests/request_backend.h"
#include "rondo/collective/shared_memory/engine.h"
#include "rondo/memory/tracker.h"

namespace rondo {

// Traits of the native engine; without registered memory in the process, parameters are not in place.
inline constexpr EngineTraits kNativeTraits = {.progresses_in_background = false,
                                               .registered_memory = true,
                                               .parameters_in_place = true,
                                               .deterministic = true,
                                               .device_tensors = true};

// The shared-memory engine as a c10d::Backend, named "rondo": for the ranks of one host, processes or
// threads.
//
// Operations start at once and are asynchronous. Every call into the backend progresses them, and so does the
// engine's helper thread while the rank is elsewhere, so that they end even if the Work is dropped. Until
// then the engine keeps the tensors; the backend's destructor waits a few seconds for operations in flight
// (Engine::close). Futures complete, and run their callbacks, on the thread that completes the operation. The
// same holds for collectives that RONDO_ALGORITHM assigns to a schedule (ScheduledCollectives), except that a
// call without asyncOp returns at their end. Reductions add in rank order on every rank. Errors are those of
// shared_memory::Engine; the first one is final.
class NativeBackend final : public RequestBackend, public FailingEngine {
 public:
  // Registers CPU allocations in a group of several ranks. With `request.deterministic`, schedules
  // (RONDO_ALGORITHM) add in rank order too.
  explicit NativeBackend(const BackendRequest& request);

  EngineTraits traits() const override;
  void all_reduce_now(const at::Tensor& tensor, const c10d::ReduceOp& op) override;
  std::optional<std::uint64_t> publish(const at::Tensor& tensor) override;
  void* published(int rank, std::uint64_t place) override;
  void close() override;
  std::exception_ptr cause_of(const std::exception_ptr& error) noexcept override;
  void shutdown() override { close(); }
  // Also fails all waiting and later calls of the peers.
  void abort() override;
  void fail(const std::exception_ptr& error) override;

  const std::string getBackendName() const override { return "rondo"; }
  std::uint64_t getSequenceNumberForGroup() override { return engine_->sequence(); }

  bool supportsSplitting() const override { return true; }
  // Collective over the members of `ranks`, with a store that they share; null for other ranks.
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                          const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<Options>& options) override;

  // Allocates tensors for communication in registered memory. Contents unspecified.
  bool supportsTensorAlloc(c10::DeviceIndex) override { return true; }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override {
    return empty_registered({size}, options);
  }

  void startCoalescing() override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_for_all_ranks) override;

 private:
  Work start(RequestCall&& call, Duration timeout, bool caller_waits) override;
  Work start_send(const at::Tensor& tensor, int destination, int tag) override;
  Work start_receive(const at::Tensor& tensor, int source, int tag) override;
  using StartMessage =
      std::shared_ptr<shared_memory::Message> (shared_memory::Engine::*)(shared_memory::Message);
  // Starts a message that sends or fills `tensor`; `memory` keeps it alive.
  Work start_message(StartMessage start, const DenseTensor& tensor, int peer, int tag, c10d::OpType type,
                     OperationMemory&& memory);

  BackendRequest request_;  // for split(); without the store
  std::shared_ptr<shared_memory::Engine> engine_;
  std::shared_ptr<ScheduledCollectives> scheduled_;  // null: the engine runs every collective
  MemoryCharge staging_;                             // this rank's segment, which the engine owns
  std::mutex kept_mutex_;                            // protects kept_
  std::vector<at::Tensor> kept_;
};

}  // namespace rondo
