#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "rondo/backend/engine/request.h"
#include "rondo/backend/engine/traits.h"
#include "rondo/backend/requests/request_call.h"
#include "rondo/base/time.h"

namespace rondo {

// A c10d::Backend for rondo's own engines: checks the arguments of each call, with the messages of c10d's
// other backends, and converts the call to a request. An engine derives from this class and implements
// start(), start_send() and start_receive().
//
// Tensors may have any strides and be on any device. Tensors that are not dense CPU tensors are copied before
// and after the operation, except device tensors of a group with one rank. Several tensors of one call are
// one contribution, as over Gloo. Pieces may be of unequal sizes, as over NCCL. Sparse COO tensors are
// reduced with SUM; that call blocks. PREMUL_SUM (all_reduce and reduce_scatter) multiplies a copy of each
// rank's contribution by that rank's factor.
//
// Any thread may call; collectives must be started in the same order on all ranks.
class RequestBackend : public ExtendedBackend {
 public:
  using Work = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<std::vector<at::Tensor>>;

  void setTimeout(std::chrono::milliseconds timeout) override { timeout_ = bounded_duration(timeout); }
  // The timeout, name and global ranks of the group as they are now; a copy.
  c10::intrusive_ptr<Options> getBackendOptions() override;
  void setSequenceNumberForGroup() override {}

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

 protected:
  // Treatment of a call with an output that overlaps an input.
  enum class Overlaps {
    refused,  // UsageError, before start() is called
    copied    // start() is called, and copies inputs
  };
  // `request` describes the group. Its timeout applies to operations without a timeout of their own.
  explicit RequestBackend(const BackendRequest& request, Overlaps overlaps = Overlaps::refused)
      : ExtendedBackend(request.rank, request.size),
        timeout_(request.timeout),
        overlaps_(overlaps),
        group_name_(request.group_name),
        world_ranks_(request.world_ranks) {}

  const std::string& group_name() const { return group_name_; }
  // Timeout of operations without a timeout of their own.
  Duration timeout() const { return timeout_.load(); }

 private:
  // The engine's functions. Errors of these functions reach the caller. An operation ends within `timeout`,
  // or timeout().

  // Starts a collective. `call` has its request, and the tensors that the engine keeps until it has ended.
  // `caller_waits`: the caller is going to wait for it at once. Never waits.
  virtual Work start(RequestCall&& call, Duration timeout, bool caller_waits) = 0;
  // Starts a message. `tensor` is as the caller gave it: any strides, any device. Never waits.
  virtual Work start_send(const at::Tensor& tensor, int destination, int tag) = 0;
  // Starts a receive, as start_send(); `source` is shared_memory::kAnyRank if any rank may send it.
  virtual Work start_receive(const at::Tensor& tensor, int source, int tag) = 0;

  Duration timeout(std::chrono::milliseconds of_call) const;
  // Checks a collective and passes it to the engine.
  Work launch(RequestCall&& call, std::chrono::milliseconds timeout, bool caller_waits = false);
  // Adds an operation that has been started to the coalesced ones, if coalescing.
  Work started(Work work);
  Work reduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options);
  Work all_gather_unequal(const Tensors& pieces, const at::Tensor& input,
                          const c10d::AllgatherOptions& options);
  Work reduce_scatter_unequal(const at::Tensor& output, const Tensors& pieces,
                              const c10d::ReduceScatterOptions& options);
  Work exchange(const Tensors& outputs, const Tensors& inputs, std::chrono::milliseconds timeout);
  Work receive(const Tensors& tensors, int source, int tag);

  std::atomic<Duration> timeout_;
  const Overlaps overlaps_;
  const std::string group_name_;
  const std::vector<int> world_ranks_;
  std::mutex coalescing_mutex_;  // protects coalescing_
  std::optional<CoalescedWork::Parts> coalescing_;
};

}  // namespace rondo
