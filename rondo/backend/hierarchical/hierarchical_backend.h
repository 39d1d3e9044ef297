#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rondo/backend/engine/failure_record.h"
#include "rondo/backend/engine/request.h"
#include "rondo/backend/hierarchical/hierarchical_options.h"
#include "rondo/backend/hierarchical/outer_link.h"
#include "rondo/backend/hierarchical/store_barrier.h"
#include "rondo/backend/hierarchical/transfers.h"
#include "rondo/backend/hierarchical/two_stage_executor.h"
#include "rondo/backend/memory/registered_memory.h"
#include "rondo/backend/requests/request_backend.h"
#include "rondo/base/process.h"

namespace rondo {

// Traits registered with the factory; an instance reports its own `deterministic`.
inline constexpr EngineTraits kHierarchicalTraits = {.deterministic = true, .device_tensors = true};

// Two engines as one c10d::Backend, named "hierarchical": shared memory among the ranks of a host, and the
// messages of any other backend between hosts. Ranks may be numbered in any order over hosts.
//
// all_reduce, broadcast, reduce, all_gather, reduce_scatter and barrier use both levels, in chunks, on two
// threads of this backend, so that they progress while the caller computes. gather, scatter and all_to_all
// are messages of the backend between hosts, also between ranks of one host; so are send and recv.
//
// Results are the same on all ranks, bit by bit: sums are added by rank within a host and then by host or, if
// the request is deterministic, by rank independently of hosts (rank_order_sum in transfers.h). Errors are
// PeerLostError, TimeoutError and MismatchError, naming ranks; the first one is final. Only the monitored
// barrier uses the group's store, and its error leaves the group usable.
//
// Destruction and close() wait up to 5 s for operations in flight, then fail them. A process that was forked
// from the one that made the backend gets UsageError.
class HierarchicalBackend final : public RequestBackend, public FailingEngine {
 public:
  struct Options : HierarchicalOptions {
    // Treats every rank as a separate host, so that `outer` transfers all data.
    bool one_rank_a_host = false;
  };

  // Throws UsageError for a codec if the request is deterministic.
  HierarchicalBackend(const BackendRequest& request, const Options& options);
  ~HierarchicalBackend() override;

  const hierarchical::HostMap& hosts() const { return executor_->transports().map; }
  EngineTraits traits() const override;
  // Returns the residuals of the codec between hosts on this rank (error feedback). The residuals are valid
  // only for the same codec, chunk size and layout of hosts.
  CommState memory() override;
  std::string restore_memory(const CommState& memory) override;
  void close() override;
  std::exception_ptr cause_of(const std::exception_ptr& error) noexcept override {
    return failure_.first(error);
  }

  void shutdown() override { close(); }
  bool supportsSplitting() const override { return true; }
  // Collective over the members of `ranks`, with a store that they share; null for other ranks. Members that
  // are all on one host get the native engine.
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                          const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<c10d::Backend::Options>& options) override;
  // Tensors for communication, which the ranks of this host read and write in place. Contents unspecified.
  bool supportsTensorAlloc(c10::DeviceIndex) override { return true; }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override {
    return empty_registered({size}, options);
  }
  void startCoalescing() override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_for_all_ranks) override;

  const std::string getBackendName() const override { return "hierarchical"; }
  std::uint64_t getSequenceNumberForGroup() override { return executor_->submitted(); }
  void abort() override;
  void fail(const std::exception_ptr& error) override;

 private:
  Work start(RequestCall&& call, Duration timeout, bool caller_waits) override;
  Work start_send(const at::Tensor& tensor, int destination, int tag) override;
  Work start_receive(const at::Tensor& tensor, int source, int tag) override;
  // Makes the operation of a call. May replace its tensors by copies.
  std::unique_ptr<hierarchical::Operation> operation_of(
      RequestCall& call, std::shared_ptr<hierarchical::Compression> compression) const;
  std::unique_ptr<hierarchical::Operation> sum_of_copies(RequestCall& call) const;
  // Returns the codec state for the call's sum; null if it is sent unencoded.
  std::shared_ptr<hierarchical::Compression> compression_of(const RequestCall& call);
  using StartMessage = std::function<Work(c10d::Backend& between_hosts, Tensors& tensors)>;
  Work message(const StartMessage& start, DenseTensor tensor, const char* direction, int peer);
  void check_open() const;
  std::string describe_codec() const;

  const OwnProcess process_;
  const BackendRequest request_;
  const Options options_;
  const bool deterministic_;
  std::atomic<bool> closed_ = false;
  hierarchical::CompressionTable compression_;
  FailureRecord failure_;
  hierarchical::StoreBarrier barrier_;
  std::shared_ptr<hierarchical::DroppedMessages> dropped_ = std::make_shared<hierarchical::DroppedMessages>();
  std::shared_ptr<hierarchical::TwoStageExecutor> executor_;
};

// Makes the engine behind `--backend hierarchical`. A group whose ranks are all on one host gets the native
// engine.
c10::intrusive_ptr<c10d::Backend> make_hierarchical_backend(const BackendRequest& request,
                                                            const HierarchicalOptions& options);

// Makes sums in the order of ranks over any engine, which only transfers messages.
c10::intrusive_ptr<c10d::Backend> make_rank_order_backend(const std::string& engine,
                                                          const BackendRequest& request);

}  // namespace rondo
