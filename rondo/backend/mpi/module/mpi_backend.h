#pragma once

#include <mpi.h>

#include <atomic>
#include <functional>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "rondo/backend/engine/request.h"

namespace rondo::mpi {

// MPI as a c10d::Backend, named "mpi". CPU tensors of any strides; others are copied on the way in and out.
// Every operation is a nonblocking one of MPI, carried on by the runtime's thread. Any thread may call;
// collectives must be started in the same order on all ranks. When a process dies mpirun ends the job; a wait
// also ends at the deadline, with a TimeoutError.
class MpiBackend final : public c10d::Backend {
 public:
  // Collective. Throws UsageError when MPI numbers this process otherwise, TimeoutError naming a member that
  // does not come.
  explicit MpiBackend(const BackendRequest& request);

  const std::string getBackendName() const override { return "mpi"; }
  void setTimeout(std::chrono::milliseconds timeout) override { timeout_ = bounded_duration(timeout); }
  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override { return sequence_; }

  using Work = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<std::vector<at::Tensor>>;

  Work broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  Work allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  Work reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  Work allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  Work _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  Work gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  Work scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) override;
  Work reduce_scatter(Tensors& outputs, TensorLists& inputs,
                      const c10d::ReduceScatterOptions& options) override;
  Work _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                            const c10d::ReduceScatterOptions& options) override;
  Work alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_splits,
                     std::vector<std::int64_t>& input_splits, const c10d::AllToAllOptions& options) override;
  Work send(Tensors& tensors, int destination, int tag) override;
  Work recv(Tensors& tensors, int source, int tag) override;
  Work barrier(const c10d::BarrierOptions& options) override;

 private:
  struct Call;
  Work start(Call call);
  Duration timeout(std::chrono::milliseconds of_call) const;

  MPI_Comm communicator_ = MPI_COMM_NULL;
  std::atomic<Duration> timeout_;
  std::atomic<std::uint64_t> sequence_ = 0;
};

}  // namespace rondo::mpi
