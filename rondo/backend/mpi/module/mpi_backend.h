#pragma once

#include <mpi.h>

#include <atomic>
#include <functional>
#include <string>

#include "rondo/backend/engine/request.h"
#include "rondo/backend/mpi/factory.h"
#include "rondo/backend/requests/request_backend.h"

namespace rondo::mpi {

// MPI as a c10d::Backend, named "mpi". Every operation is a nonblocking one of MPI, carried on by the
// runtime's thread. When a process dies mpirun ends the job; a wait also ends at the deadline, with a
// TimeoutError.
class MpiBackend final : public RequestBackend {
 public:
  // Collective. Throws UsageError when MPI numbers this process otherwise, TimeoutError naming a member that
  // does not come.
  explicit MpiBackend(const BackendRequest& request);

  EngineTraits traits() const override { return kMpiTraits; }
  const std::string getBackendName() const override { return "mpi"; }
  std::uint64_t getSequenceNumberForGroup() override { return sequence_; }

 private:
  Work start(RequestCall&& call, Duration timeout, bool caller_waits) override;
  Work start_send(const at::Tensor& tensor, int destination, int tag) override;
  Work start_receive(const at::Tensor& tensor, int source, int tag) override;
  // `start` and, when MPI is done, `conclude` run on the MPI thread.
  Work post(c10d::OpType type, const std::string& what, OperationMemory&& memory, Duration limit,
            std::function<MPI_Request()> start, std::function<void()> conclude = {});

  MPI_Comm communicator_ = MPI_COMM_NULL;
  std::atomic<std::uint64_t> sequence_ = 0;
};

}  // namespace rondo::mpi
