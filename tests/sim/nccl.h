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

// Runs functions one after another on its own thread; the destructor waits for all of them.
class Lane {
 public:
  Lane();
  ~Lane();
  void post(std::function<void()> task);

 private:
  void run();

  std::mutex mutex_;  // protects the members below
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool ends_ = false;
  std::thread thread_;  // last: it uses the other members
};

// A communicator that behaves as c10d's ProcessGroupNCCL, for devices of the simulated accelerator. An engine
// of the CPU transfers the bytes. As NCCL it
//
// - rejects tensors on the host, and two ranks with one device,
// - returns from a collective and from its wait() at once: streams wait for it (streams.h),
// - never completes a collective with a dead or stopped peer until abort(),
// - is unusable after abort(), which makes peers wait forever,
// - ignores tags: the sends and receives of two ranks match in the order in which each rank posts them,
// - completes a send only with the peer's receive. Two ranks that both send first, outside of
//   startCoalescing() and endCoalescing(), are a deadlock, which is reported here as an error on both.
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
  // One rank's side of an exchange between two ranks: an operation, or a group of them.
  struct Posted {
    std::vector<at::Tensor> sends;
    std::vector<at::Tensor> receives;
  };

  // Returns CPU tensors that share and keep the memory of these; throws unless all are on this rank's device.
  at::Tensor host_of(const at::Tensor& tensor);
  Tensors host_of(const Tensors& tensors);
  TensorLists host_of(const TensorLists& lists);
  void check_device(c10::Device device);
  // Runs a collective after the current stream of `results`, the tensors that it writes.
  Work on_stream(Tensors results, std::function<Work()> start);
  void end_all();
  bool is_aborted();
  Work post(int peer, const at::Tensor& tensor, bool sends);
  // Runs exchange() on the lane of `peer`.
  std::shared_future<void> start(int peer, Posted posted);
  void exchange(int peer, std::int64_t number, const Posted& posted);

  const BackendRequest request_;
  const c10::intrusive_ptr<c10d::Backend> host_;
  std::mutex mutex_;                                 // protects the members below
  std::optional<c10::Device> device_;                // device of this rank, after its first use
  std::map<int, std::unique_ptr<Lane>> lanes_;       // by peer
  std::map<int, std::int64_t> posted_;               // exchanges begun, by peer
  std::optional<std::map<int, Posted>> coalescing_;  // by peer, between startCoalescing and endCoalescing
  bool aborted_ = false;
  std::condition_variable aborting_;
  std::vector<std::weak_ptr<StreamWork>> works_;  // collectives that may be in flight
  std::unique_ptr<Lane> collectives_;             // runs them in order
};

}  // namespace rondo::sim
