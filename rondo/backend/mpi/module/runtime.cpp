#include "rondo/backend/mpi/module/runtime.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo::mpi {
namespace {

template <class Half, Reduction kind>
void combine(void* from, void* into, int* length, MPI_Datatype*) {
  const auto* a = static_cast<const Half*>(from);
  auto* b = static_cast<Half*>(into);
  for (int i = 0; i < *length; ++i) {
    const float x = static_cast<float>(a[i]);
    const float y = static_cast<float>(b[i]);
    if constexpr (kind == Reduction::sum) b[i] = static_cast<Half>(y + x);
    if constexpr (kind == Reduction::product) b[i] = static_cast<Half>(y * x);
    if constexpr (kind == Reduction::minimum) b[i] = static_cast<Half>(std::min(x, y));
    if constexpr (kind == Reduction::maximum) b[i] = static_cast<Half>(std::max(x, y));
  }
}

MPI_Datatype make_half_type() {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Type_contiguous(2, MPI_BYTE, &type);
  MPI_Type_commit(&type);
  return type;
}

MPI_Op make_op(MPI_User_function* function) {
  MPI_Op op = MPI_OP_NULL;
  MPI_Op_create(function, 1, &op);
  return op;
}

template <class Half>
MPI_Op half_op(Reduction kind) {
  static const MPI_Op sum = make_op(combine<Half, Reduction::sum>);
  static const MPI_Op product = make_op(combine<Half, Reduction::product>);
  static const MPI_Op least = make_op(combine<Half, Reduction::minimum>);
  static const MPI_Op largest = make_op(combine<Half, Reduction::maximum>);
  switch (kind) {
    case Reduction::sum:
    case Reduction::average:
      return sum;
    case Reduction::product:
      return product;
    case Reduction::minimum:
      return least;
    case Reduction::maximum:
      return largest;
    default:
      throw UsageError("backend mpi: bitwise reductions are not defined on floating types");
  }
}

}  // namespace

ElementType element_type(at::ScalarType type, bool reduces) {
  static const MPI_Datatype half = make_half_type();
  switch (type) {
    case at::kFloat:
      return {MPI_FLOAT};
    case at::kDouble:
      return {MPI_DOUBLE};
    case at::kHalf:
    case at::kBFloat16:
      return {half};
    case at::kChar:
      return {MPI_INT8_T};
    case at::kByte:
      return {MPI_UINT8_T};
    case at::kShort:
      return {MPI_INT16_T};
    case at::kInt:
      return {MPI_INT32_T};
    case at::kLong:
      return {MPI_INT64_T};
    case at::kComplexFloat:
      return {MPI_FLOAT, 2};
    case at::kComplexDouble:
      return {MPI_DOUBLE, 2};
    default:
      break;
  }
  if (reduces)
    throw UsageError(str("backend mpi: elements of type ", c10::toString(type), " cannot be reduced"));
  return {MPI_BYTE, static_cast<int>(c10::elementSize(type))};
}

MPI_Op reduction(Reduction reduction, at::ScalarType type) {
  if (type == at::kHalf) return half_op<at::Half>(reduction);
  if (type == at::kBFloat16) return half_op<at::BFloat16>(reduction);
  if (reduction == Reduction::average && !c10::isFloatingType(type) && !c10::isComplexType(type))
    throw UsageError("backend mpi: AVG is not defined on integers");
  switch (reduction) {
    case Reduction::sum:
    case Reduction::average:
      return MPI_SUM;
    case Reduction::product:
      return MPI_PROD;
    case Reduction::minimum:
      return MPI_MIN;
    case Reduction::maximum:
      return MPI_MAX;
    case Reduction::bitwise_and:
      return MPI_BAND;
    case Reduction::bitwise_or:
      return MPI_BOR;
    case Reduction::bitwise_xor:
      return MPI_BXOR;
  }
  throw UsageError(str("backend mpi has no reduction ", name(reduction)));
}

namespace {

constexpr int kSpins = 2000;
constexpr auto kYieldTime = std::chrono::milliseconds(2);
constexpr auto kNap = std::chrono::microseconds(50);

}  // namespace

void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw Error(str(call, " failed: ", text.data()));
}

Runtime& Runtime::instance() {
  static Runtime runtime;
  return runtime;
}

Runtime::Runtime() {
  thread_ = std::thread([this] { loop(); });
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return ready_; });
  if (init_error_.empty()) return;
  lock.unlock();
  thread_.join();
  throw UsageError(init_error_);
}

Runtime::~Runtime() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Runtime::post(std::shared_ptr<Task> task) {
  {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(task));
  }
  changed_.notify_all();
}

void Runtime::run(const std::function<void()>& call) {
  std::mutex mutex;
  std::condition_variable done;
  bool finished = false;
  std::exception_ptr error;
  auto task = std::make_shared<Task>();
  task->start = [&] {
    call();
    return std::vector<MPI_Request>();
  };
  task->done = [&](std::exception_ptr result) {
    const std::lock_guard lock(mutex);
    error = result;
    finished = true;
    done.notify_all();
  };
  post(task);
  std::unique_lock lock(mutex);
  done.wait(lock, [&] { return finished; });
  if (error) std::rethrow_exception(error);
}

bool Runtime::start_posted() {
  std::deque<std::shared_ptr<Task>> posted;
  {
    const std::lock_guard lock(mutex_);
    posted.swap(posted_);
  }
  for (auto& task : posted) {
    try {
      task->requests = task->start();
      active_.push_back(task);
    } catch (...) {
      failed_ = true;
      task->done(std::current_exception());
    }
  }
  return !posted.empty();
}

bool Runtime::test_active() {
  bool moved = false;
  for (auto entry = active_.begin(); entry != active_.end();) {
    Task& task = **entry;
    int complete = 0;
    std::exception_ptr error;
    try {
      check(MPI_Testall(static_cast<int>(task.requests.size()), task.requests.data(), &complete,
                        MPI_STATUSES_IGNORE),
            "MPI_Testall");
    } catch (...) {
      failed_ = true;
      error = std::current_exception();
    }
    if (complete == 0 && !error) {
      ++entry;
      continue;
    }
    const std::shared_ptr<Task> done = *entry;
    entry = active_.erase(entry);
    done->done(error);
    moved = true;
  }
  return moved;
}

void Runtime::loop() {
  int provided = 0;
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized != 0) {
    init_error_ = "backend mpi: this program has initialised MPI itself; rondo's module must do it";
  } else if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) {
    init_error_ = "backend mpi: MPI_Init failed; its own message says why";
  } else {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  {
    const std::lock_guard lock(mutex_);
    ready_ = true;
  }
  changed_.notify_all();
  if (!init_error_.empty()) return;
  int idle = 0;
  auto idle_since = std::chrono::steady_clock::now();
  while (true) {
    const bool started = start_posted();
    const bool moved = test_active() || started;
    if (active_.empty()) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !posted_.empty() || stopping_; });
      if (posted_.empty()) break;
      idle = 0;
      continue;
    }
    if (moved) idle = 0;
    if (++idle < kSpins) continue;
    const auto now = std::chrono::steady_clock::now();
    if (idle == kSpins) idle_since = now;
    std::unique_lock lock(mutex_);
    if (stopping_) break;
    if (!posted_.empty()) continue;
    if (now - idle_since < kYieldTime) {
      lock.unlock();
      sched_yield();
    } else {
      changed_.wait_for(lock, kNap);
    }
  }
  // MPI_Finalize waits for all ranks. After a failure they may never call it; mpirun then ends the job
  // instead.
  if (!failed_ && active_.empty()) MPI_Finalize();
}

}  // namespace rondo::mpi
