#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "rondo/backend/engine/request.h"
#include "tests/sim/streams.h"

namespace rondo::sim {

// Runs functions one after another on a thread of its own; the destructor waits for those that were given.
class Lane {
 public:
  Lane();
  ~Lane();
  void post(std::function<void()> task);

 private:
  void run();

  std::mutex mutex_;  // protects what follows
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool ends_ = false;
  std::thread thread_;  // last: it uses the others
};

// A communicator that behaves as c10d's ProcessGroupNCCL, for devices of the simulated accelerator. An engine
// of the CPU moves the bytes. As NCCL it
//
// - refuses tensors on the host, and two ranks with one device,
// - returns from a collective and from its wait() at once: streams wait for it (streams.h),
// - never ends a collective of which a peer has died or is stopped, until abort(),
// - is of no use after abort(), which makes peers wait for ever,
// - ignores tags: the sends and receives of two ranks go in the order in which each rank posts them,
// - completes a send with the receive of the peer only. Two ranks that both send first, outside
// startCoalescing() and
//   endCoalescing(), are a deadlock, and here an error that says so on both.
class Nccl final : public c10d::Backend {
 public:
  using Work = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<Tensors>;

  Nccl(const BackendRequest& request, c10::intrusive_ptr<c10d::Backend> host);
  ~Nccl() override;

  const std::string getBackendName() const override { return "nccl"; }
  void setTimeout(std::chrono::milliseconds timeout) override { host_->setTimeout(timeout); }
  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  Work endCoalescing() override;
  void shutdown() override;
  void abort() override;

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
  Work barrier(const c10d::BarrierOptions& options) override;

 private:
  // One end of an exchange of two ranks: an operation, or a group of them.
  struct Posted {
    std::vector<at::Tensor> sends;
    std::vector<at::Tensor> receives;
  };

  // CPU tensors over the memory of these, which they keep; throws unless all are on the device of this rank.
  at::Tensor host_of(const at::Tensor& tensor);
  Tensors host_of(const Tensors& tensors);
  TensorLists host_of(const TensorLists& lists);
  void check_device(c10::Device device);
  // Has a collective run behind the current stream of `results`, the tensors that it writes.
  Work on_stream(Tensors results, std::function<Work()> start);
  void end_all();
  bool is_aborted();
  Work post(int peer, const at::Tensor& tensor, bool sends);
  // Has exchange() run on the lane of `peer`.
  std::shared_future<void> start(int peer, Posted posted);
  void exchange(int peer, std::int64_t number, const Posted& posted);

  const BackendRequest request_;
  const c10::intrusive_ptr<c10d::Backend> host_;
  std::mutex mutex_;                                 // protects what follows
  std::optional<c10::Device> device_;                // of this rank, once it was used
  std::map<int, std::unique_ptr<Lane>> lanes_;       // by peer
  std::map<int, std::int64_t> posted_;               // exchanges begun, by peer
  std::optional<std::map<int, Posted>> coalescing_;  // by peer, between startCoalescing and endCoalescing
  bool aborted_ = false;
  std::condition_variable aborting_;
  std::vector<std::weak_ptr<StreamWork>> works_;  // collectives so far that may not have ended
  std::unique_ptr<Lane> collectives_;             // runs them in order
};

}  // namespace rondo::sim
