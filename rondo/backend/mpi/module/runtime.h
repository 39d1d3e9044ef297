#pragma once

#include <ATen/core/Tensor.h>
#include <mpi.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "rondo/collective/dtype.h"

namespace rondo::mpi {

// MPI's datatype for an element type. float16 and bfloat16, which MPI lacks, are custom datatypes. Types that
// cannot be reduced are sent as bytes (`reduces` false; `per_element` then counts MPI elements). Throws
// UsageError for other types. On the MPI thread.
struct ElementType {
  MPI_Datatype type;
  int per_element = 1;
};
ElementType element_type(at::ScalarType type, bool reduces);

// Returns MPI's reduction; SUM for an average, which the caller divides. Throws UsageError for unsupported
// reductions.
MPI_Op reduction(Reduction reduction, at::ScalarType type);

// An asynchronous operation that starts MPI requests and completes when all of them do.
struct Task {
  std::function<std::vector<MPI_Request>()> start;  // on the MPI thread
  std::function<void(std::exception_ptr)> done;     // on the MPI thread, once
  std::vector<MPI_Request> requests = {};
};

// MPI in this process. One thread makes every MPI call, MPI_Init included, so MPI_THREAD_FUNNELED suffices.
// It sleeps while no operation is in flight; otherwise it tests requests, spinning at first and then yielding
// the core to computations.
class Runtime {
 public:
  // Returns the runtime of this process; MPI can be initialised once. Throws UsageError if initialisation
  // fails.
  static Runtime& instance();
  ~Runtime();

  int rank() const { return rank_; }
  int size() const { return size_; }
  // Posts a task. Tasks start in the order in which they are posted. Any thread.
  void post(std::shared_ptr<Task> task);
  // Runs `call` on the MPI thread and blocks until it returns; rethrows its exception.
  void run(const std::function<void()>& call);

 private:
  Runtime();
  void loop();
  bool start_posted();
  bool test_active();

  std::mutex mutex_;  // protects posted_, stopping_ and ready_
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Task>> posted_;
  bool stopping_ = false;
  bool ready_ = false;
  std::list<std::shared_ptr<Task>> active_;  // used by the MPI thread only
  bool failed_ = false;                      // used by the MPI thread only
  std::string init_error_;
  int rank_ = 0;
  int size_ = 1;
  std::thread thread_;
};

// Throws rondo::Error with MPI's text unless `code` is MPI_SUCCESS. On the MPI thread.
void check(int code, const char* call);

}  // namespace rondo::mpi
