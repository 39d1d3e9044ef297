#include "rondo/parallel/replicas/replica_threads.h"

#include <ATen/Parallel.h>
#include <torch/types.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <algorithm>
#include <latch>
#include <numeric>
#include <utility>

#include "rondo/backend/context.h"
#include "rondo/backend/engine/engine_text.h"
#include "rondo/backend/engine/nccl_module.h"
#include "rondo/backend/registry.h"
#include "rondo/base/error.h"
#include "rondo/base/log.h"
#include "rondo/base/printable.h"
#include "rondo/base/text.h"
#include "rondo/channel/waiting.h"
#include "rondo/device/devices.h"
#include "rondo/memory/scope.h"

namespace rondo {
namespace {

// About 100 us on current processors: longer than a trainer needs between two steps of a small model.
constexpr int kReplicaSpins = 2500;
constexpr auto kReplicaSleep = std::chrono::seconds(1);

// Replica of the calling thread, within the run() of `threads`.
struct ReplicaOfThread {
  const ReplicaThreads* threads = nullptr;
  int replica = 0;
};
thread_local ReplicaOfThread replica_of_thread;

// Thrown by meet() after another replica has thrown.
class ReplicaStopped final : public CancelledError {
 public:
  ReplicaStopped() : CancelledError("another replica of this process has failed") {}
};

template <class Known>
void rethrow_as(const std::exception_ptr& error, const std::string& prefix) {
  try {
    std::rethrow_exception(error);
  } catch (const Known& known) {
    if constexpr (std::is_base_of_v<CommunicationError, Known>) {
      throw Known(prefix + known.what(), known.ranks());
    } else if constexpr (std::is_same_v<MemoryLimitError, Known>) {
      throw MemoryLimitError(prefix + known.what(), known.wanted(), known.limit());
    } else {
      throw Known(prefix + known.what());
    }
  } catch (...) {
    return;
  }
}

// Rethrows as the first type that matches; derived types must precede their bases.
template <class... Known>
void rethrow_as_one_of(const std::exception_ptr& error, const std::string& prefix) {
  (rethrow_as<Known>(error, prefix), ...);
}

}  // namespace

ReplicaThreads::ReplicaThreads(int replicas)
    : replicas_(replicas),
      torch_threads_(std::max(1, at::get_num_threads() / std::max(1, replicas))),
      // With fewer processors than replicas, a spinning thread would delay the others.
      spins_(static_cast<int>(std::thread::hardware_concurrency()) >= replicas ? kReplicaSpins : 0),
      errors_(static_cast<std::size_t>(replicas)),
      trackers_(static_cast<std::size_t>(replicas)) {
  if (replicas < 1) throw UsageError(str("a process with ", replicas, " replicas: expected one or more"));
  trackers_[0] = &replica_memory_tracker();
  if (replicas == 1) return;
  at::set_num_threads(torch_threads_);
  std::latch ready(replicas - 1);
  for (int replica = 1; replica < replicas; ++replica) {
    threads_.push_back(replica_thread([this, replica, rank = replica_of_this_rank(), &ready] {
      const Replica number(rank);
      begin_replica_tracker(number.number());
      number.enter();
      log::set_prefix(str("replica ", replica));
      trackers_[static_cast<std::size_t>(replica)] = &replica_memory_tracker();
      at::set_num_threads(torch_threads_);
      ready.count_down();
      work(replica);
    }));
  }
  ready.wait();
}

ReplicaThreads::~ReplicaThreads() {
  ends_ = true;
  change(job_);
  for (std::thread& thread : threads_) thread.join();
}

void ReplicaThreads::wait_while(std::atomic<std::uint32_t>& word, std::uint32_t value) {
  for (int i = 0; i < spins_; ++i) {
    if (word.load(std::memory_order_acquire) != value) return;
    relax_processor();
  }
  ++sleepers_;
  while (word.load() == value) futex_wait(word, value, kReplicaSleep);
  --sleepers_;
}

// A thread that goes to sleep increments sleepers_ before its last read of the word. So either this thread
// sees the sleeper, or the sleeper sees the change.
void ReplicaThreads::change(std::atomic<std::uint32_t>& word) {
  ++word;
  if (sleepers_.load() > 0) futex_wake_all(word);
}

void ReplicaThreads::work(int replica) {
  std::uint32_t seen = 0;
  for (;;) {
    wait_while(job_, seen);
    ++seen;
    if (ends_) return;
    run_one(replica);
    if (--at_work_ == 0) change(done_);
  }
}

void ReplicaThreads::run_one(int replica) {
  const ReplicaOfThread outer = std::exchange(replica_of_thread, {this, replica});
  try {
    (*body_)(replica);
  } catch (...) {
    errors_[static_cast<std::size_t>(replica)] = std::current_exception();
    failed_ = true;
    change(meeting_);
  }
  replica_of_thread = outer;
}

void ReplicaThreads::run(const std::function<void(int)>& body) {
  if (replica_of_thread.threads == this) throw UsageError("run() of a strategy was called within its run()");
  body_ = &body;
  failed_ = false;
  arrived_ = 0;
  at_work_ = static_cast<std::uint32_t>(replicas_ - 1);
  const std::uint32_t done = done_;
  change(job_);
  run_one(0);
  if (replicas_ > 1) wait_while(done_, done);
  body_ = nullptr;
  if (failed_) rethrow_first();
}

void ReplicaThreads::run_on(int replica, const std::function<void()>& body) {
  run([&](int each) {
    if (each == replica) body();
  });
}

void ReplicaThreads::run_on(int replica, c10::Device device, const std::function<void()>& body) {
  run_on(replica, [&] {
    if (replica > 0 || !device.is_cpu()) set_current_device(device);
    body();
  });
}

void ReplicaThreads::meet() {
  if (replicas_ == 1) return;
  const std::uint32_t meeting = meeting_;
  if (failed_) throw ReplicaStopped();
  if (++arrived_ == static_cast<std::uint32_t>(replicas_)) {
    arrived_ = 0;
    change(meeting_);
  } else {
    wait_while(meeting_, meeting);
  }
  if (failed_) throw ReplicaStopped();
}

int ReplicaThreads::current() const {
  return replica_of_thread.threads == this ? replica_of_thread.replica : 0;
}

std::vector<std::uint64_t> ReplicaThreads::peak_bytes() const {
  std::vector<std::uint64_t> peaks;
  for (const MemoryTracker* tracker : trackers_) peaks.push_back(tracker->peak_total());
  return peaks;
}

void ReplicaThreads::rethrow_first() {
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(replicas_));
  errors.swap(errors_);
  for (int replica = 0; replica < replicas_; ++replica) {
    const std::exception_ptr& error = errors[static_cast<std::size_t>(replica)];
    if (!error) continue;
    if (replicas_ == 1) std::rethrow_exception(error);
    try {
      std::rethrow_exception(error);
    } catch (const ReplicaStopped&) {
      continue;
    } catch (...) {
      const std::string prefix = str("replica ", replica, " of ", replicas_, ": ");
      rethrow_as_one_of<PeerLostError, TimeoutError, MismatchError, CommunicationError, MemoryLimitError,
                        UsageError, DataError, CancelledError, Error>(error, prefix);
      // Any other exception, of the standard library or libtorch.
      try {
        std::rethrow_exception(error);
      } catch (const std::exception& other) {
        throw Error(prefix + plain_message(other));
      }
    }
  }
}

namespace {

constexpr const char* kNcclEngine = "nccl";

// Sums one pack of tensors with one dtype.
void all_reduce_pack(c10d::Backend& backend, const std::vector<at::Tensor>& pack) {
  std::vector<at::Tensor> flat;
  if (pack.size() == 1 && pack.front().is_contiguous()) {
    flat = pack;
  } else {
    std::vector<at::Tensor> pieces;
    for (const at::Tensor& tensor : pack) pieces.push_back(tensor.reshape({-1}));
    flat = {at::cat(pieces)};
  }
  backend.allreduce(flat)->wait();
  if (flat.front().is_same(pack.front())) return;
  std::int64_t offset = 0;
  for (const at::Tensor& tensor : pack) {
    tensor.copy_(flat.front().narrow(0, offset, tensor.numel()).view(tensor.sizes()));
    offset += tensor.numel();
  }
}

std::string why_no_nccl() { return have_nccl() ? std::string() : str("; ", kNoNccl); }

}  // namespace

ReplicaEngines::ReplicaEngines(ReplicaThreads& threads, const std::string& engine, Duration timeout)
    : communicators_(static_cast<std::size_t>(threads.size())) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  BackendRequest request;
  request.group_name = "replicas";
  request.size = threads.size();
  request.world_ranks.resize(communicators_.size());
  std::iota(request.world_ranks.begin(), request.world_ranks.end(), 0);
  request.store = store;
  request.timeout = timeout;
  threads.run([&](int replica) {
    BackendRequest own = request;
    own.rank = replica;
    communicators_[static_cast<std::size_t>(replica)] = make_communicator(engine, own);
  });
}

void ReplicaEngines::all_reduce(int replica, const std::vector<at::Tensor>& tensors, int num_packs) {
  const at::NoGradGuard no_grad;
  c10d::Backend& backend = *communicators_[static_cast<std::size_t>(replica)].backend;
  const std::size_t packs =
      num_packs == 0 ? tensors.size() : std::min(tensors.size(), static_cast<std::size_t>(num_packs));
  for (std::size_t i = 0; i < packs; ++i) {
    const auto begin = tensors.begin() + static_cast<std::ptrdiff_t>(tensors.size() * i / packs);
    const auto end = tensors.begin() + static_cast<std::ptrdiff_t>(tensors.size() * (i + 1) / packs);
    for (auto from = begin; from != end;) {
      const auto to = std::find_if(
          from, end, [&](const at::Tensor& tensor) { return tensor.scalar_type() != from->scalar_type(); });
      all_reduce_pack(backend, {from, to});
      from = to;
    }
  }
}

void require_cuda_devices(const std::vector<c10::Device>& devices, const std::string& what) {
  const auto cpu =
      std::find_if(devices.begin(), devices.end(), [](c10::Device each) { return each.is_cpu(); });
  if (cpu == devices.end()) return;
  throw UsageError(str(what, ": NCCL takes the memory of GPUs only, and replica ", cpu - devices.begin(),
                       " is on the CPU; give --device cuda, or leave the option out", why_no_nccl()));
}

void require_nccl(const Context& context, const std::string& what) {
  if (context.world_size() == 1 || split_engine(context.backend_name()).name == kNcclEngine) return;
  throw UsageError(str(what, ": the engine of this job is ", context.backend_name(),
                       "; give --device cuda and --backend nccl, with a GPU for each rank", why_no_nccl()));
}

}  // namespace rondo
