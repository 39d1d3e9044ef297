#include "rondo/backend/mpi/module/runtime.h"

#include <sched.h>

#include <array>
#include <chrono>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo::mpi {
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
  // Finalizing waits for all ranks. After a failure they may never come; mpirun then ends the job instead.
  if (!failed_ && active_.empty()) MPI_Finalize();
}

}  // namespace rondo::mpi
