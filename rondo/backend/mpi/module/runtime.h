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

// MPI's name of an element type; float16 and bfloat16, which MPI does not have, are types of our own. Types
// that cannot be reduced are sent as bytes (`reduces` false; `per_element` then counts MPI elements). Throws
// UsageError for others. On the MPI thread.
struct ElementType {
  MPI_Datatype type;
  int per_element = 1;
};
ElementType element_type(at::ScalarType type, bool reduces);

// MPI's operation; SUM for an average, which the caller divides. Throws UsageError for what MPI cannot.
MPI_Op reduction(Reduction reduction, at::ScalarType type);

// One asynchronous operation: starts MPI requests, and is done when all of them are.
struct Task {
  std::function<std::vector<MPI_Request>()> start;  // on the MPI thread
  std::function<void(std::exception_ptr)> done;     // on the MPI thread, once
  std::vector<MPI_Request> requests = {};
};

// MPI of this process. One thread makes every call of it, MPI_Init included, so that any MPI will do
// (MPI_THREAD_FUNNELED). It sleeps while nothing is under way, and else tests requests: spinning at first,
// then giving way to others, as a computation may need the core.
class Runtime {
 public:
  // The one of this process: MPI can be initialised once. Throws UsageError when it cannot be.
  static Runtime& instance();
  ~Runtime();

  int rank() const { return rank_; }
  int size() const { return size_; }
  // Any thread. Tasks start in the order in which they are posted.
  void post(std::shared_ptr<Task> task);
  // Runs `call` on the MPI thread and returns when it has; its exception is thrown here.
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
  std::list<std::shared_ptr<Task>> active_;  // of the MPI thread
  bool failed_ = false;                      // of the MPI thread
  std::string init_error_;
  int rank_ = 0;
  int size_ = 1;
  std::thread thread_;
};

// Throws rondo::Error with MPI's text unless `code` is MPI_SUCCESS. On the MPI thread.
void check(int code, const char* call);

}  // namespace rondo::mpi
