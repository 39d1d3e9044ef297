#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "rondo/backend/engine/failing_engine.h"
#include "rondo/backend/engine/failure_record.h"
#include "rondo/backend/engine/request.h"
#include "rondo/backend/hierarchical/all_reduce.h"
#include "rondo/backend/hierarchical/compression.h"
#include "rondo/backend/hierarchical/direct_message.h"
#include "rondo/backend/hierarchical/hierarchical_options.h"
#include "rondo/backend/hierarchical/pipeline.h"

namespace rondo {

// Of a factory's; a communicator that is not deterministic is not deterministic.
inline constexpr EngineTraits kHierarchicalTraits = {.deterministic = true, .device_tensors = true};

// Two engines as one c10d::Backend, named "hierarchical": shared memory among the ranks of a host, and any
// other backend, of which only messages are used, between hosts. Ranks may be numbered in any order over
// hosts.
//
// all_reduce, broadcast, reduce, all_gather, reduce_scatter and barrier go through the hierarchy, in chunks,
// on two threads of this backend, so that they move on while the caller computes. gather, scatter and
// all_to_all are messages of the backend between hosts, also between ranks of one host; so are send and recv.
//
// Results are the same on all ranks, bit by bit: sums are added by rank within a host and by host then, or,
// where the request says deterministic, by rank whatever the hosts (rank_order.h).
// Tensors may have any strides and live on any device; those that are not dense CPU tensors are copied on the
// way in and out. Any thread may call; collectives must be started in the same order on all ranks. Errors are
// PeerLostError, TimeoutError and MismatchError, naming ranks; the first one is final.
class HierarchicalBackend final : public ExtendedBackend, public FailingEngine {
 public:
  struct Options : HierarchicalOptions {
    // Every rank counts as a host of its own, so that `outer` carries everything.
    bool one_rank_a_host = false;
  };

  // Throws UsageError for a codec where the request says deterministic.
  HierarchicalBackend(const BackendRequest& request, const Options& options);
  ~HierarchicalBackend() override;

  const hierarchical::HostMap& hosts() const { return pipeline_->transports().map; }
  EngineTraits traits() const override;
  // What the codec between hosts has left out of sums so far on this rank (error feedback); of another codec,
  // cutting or layout of hosts it cannot be used.
  std::map<std::string, at::Tensor> memory() override;
  std::string restore_memory(const std::map<std::string, at::Tensor>& memory) override;
  void close() override;
  std::exception_ptr cause_of(const std::exception_ptr& error) noexcept override {
    return failure_.first(error);
  }

  const std::string getBackendName() const override { return "hierarchical"; }
  void setTimeout(std::chrono::milliseconds timeout) override { timeout_ = bounded_duration(timeout); }
  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override { return pipeline_->submitted(); }
  void abort() override { pipeline_->abort("the group was aborted by its caller"); }
  void fail(const std::exception_ptr& error) override { pipeline_->abort(error); }

  using Work = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<std::vector<at::Tensor>>;

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
  Work reduce_scatter(Tensors& outputs, TensorLists& inputs,
                      const c10d::ReduceScatterOptions& options) override;
  Work _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                            const c10d::ReduceScatterOptions& options) override;
  Work reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                       const c10d::ReduceScatterOptions& options) override;
  Work barrier(const c10d::BarrierOptions& options) override;

  Work gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  Work scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) override;
  Work alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_splits,
                     std::vector<std::int64_t>& input_splits, const c10d::AllToAllOptions& options) override;
  Work alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  Work send(Tensors& tensors, int destination, int tag) override;
  Work recv(Tensors& tensors, int source, int tag) override;
  Work recvAnysource(Tensors& tensors, int tag) override;

 private:
  class Call;
  Work start(Call& call, std::chrono::milliseconds timeout);
  Work reduce_in_rank_order(const at::Tensor& tensor, const c10d::ReduceOptions& options);
  // The Work gives `results`, or the tensor where there are none. `copies`, of its shape, get the result,
  // too.
  Work reduce_in_place(const at::Tensor& tensor, const c10d::ReduceOp& op, std::chrono::milliseconds timeout,
                       const Tensors& results = {}, const Tensors& copies = {});
  using StartMessage = std::function<Work(c10d::Backend& between_hosts, Tensors& tensors)>;
  Work message(const StartMessage& start, DenseTensor tensor, const char* direction, int peer);
  Work receive(const StartMessage& start, const Tensors& tensors, int peer);
  std::unique_ptr<hierarchical::Operation> scattered_sum(const CollectiveRequest& request) const;
  void check_open() const;
  std::string describe_codec() const;

  Options options_;
  const bool deterministic_;
  std::atomic<Duration> timeout_;
  std::atomic<bool> closed_ = false;
  hierarchical::CompressionTable compression_;
  FailureRecord failure_;
  std::shared_ptr<hierarchical::Pipeline> pipeline_;
};

// The factory behind `--backend hierarchical`. A group whose ranks are all on one host gets the native
// engine.
c10::intrusive_ptr<c10d::Backend> make_hierarchical_backend(const BackendRequest& request,
                                                            const HierarchicalOptions& options);

// Any engine with sums in the order of ranks: its messages are used, its reductions are not.
c10::intrusive_ptr<c10d::Backend> make_rank_order_backend(const std::string& engine,
                                                          const BackendRequest& request);

}  // namespace rondo
