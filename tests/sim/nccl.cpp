#include "tests/sim/nccl.h"

#include <ATen/core/jit_type.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/StreamGuard.h>

#include <atomic>
#include <chrono>
#include <future>
#include <stdexcept>
#include <utility>

#include "rondo/backend/engine/module.h"
#include "rondo/base/error.h"
#include "tests/sim/device.h"
#include "tests/sim/memory.h"

namespace rondo::sim {
namespace {

// The work of one or more exchanges that complete together.
class ExchangeWork final : public c10d::Work {
 public:
  explicit ExchangeWork(std::vector<std::shared_future<void>> parts) : parts_(std::move(parts)) {}

  bool isCompleted() override {
    for (const std::shared_future<void>& part : parts_) {
      if (part.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return false;
    }
    return true;
  }
  bool isSuccess() const override { return exception() == nullptr; }
  std::exception_ptr exception() const override {
    for (const std::shared_future<void>& part : parts_) {
      try {
        part.get();
      } catch (...) {
        return std::current_exception();
      }
    }
    return nullptr;
  }
  // Exchanges have their own deadlines.
  bool wait(std::chrono::milliseconds /*timeout*/) override {
    for (const std::shared_future<void>& part : parts_) part.get();
    return true;
  }
  void synchronize() override { wait(kNoTimeout); }

 private:
  const std::vector<std::shared_future<void>> parts_;
};

// The work of a collective. wait() makes the current stream wait, as on a GPU.
class CollectiveWork final : public c10d::Work {
 public:
  CollectiveWork(int rank, std::shared_ptr<StreamWork> work, std::vector<at::Tensor> results)
      : c10d::Work(rank, c10d::OpType::UNKNOWN),
        work_(std::move(work)),
        results_(std::move(results)),
        device_(results_.front().device()) {
    const c10::Stream own(c10::Stream::UNSAFE, device_, next_stream());
    put_behind(own, {work_});
    const c10::StreamGuard guard(own);
    future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                       std::vector{device_});
    future_->markCompleted(c10::IValue(results_));
  }

  bool isCompleted() override { return work_->has_ended(); }
  bool isSuccess() const override { return work_->has_ended() && !work_->error(); }
  std::exception_ptr exception() const override { return work_->error(); }
  bool wait(std::chrono::milliseconds timeout) override {
    if (timeout != kNoTimeout && !work_->wait_for(timeout))
      throw std::runtime_error("nccl: a collective has passed its deadline");
    put_behind(current_stream(device_.index()), {work_});
    return true;
  }
  void synchronize() override { wait(kNoTimeout); }
  void abort() override { work_->end(); }
  std::vector<at::Tensor> result() override { return results_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  // Returns an id outside the range of programs' streams.
  static c10::StreamId next_stream() {
    static std::atomic<c10::StreamId> next{1000};
    return next++;
  }

  const std::shared_ptr<StreamWork> work_;
  const std::vector<at::Tensor> results_;
  const c10::Device device_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

std::vector<at::Tensor> flat(const std::vector<std::vector<at::Tensor>>& lists) {
  std::vector<at::Tensor> all;
  for (const std::vector<at::Tensor>& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

std::string counts_of(std::size_t sends, std::size_t receives) {
  return std::to_string(sends) + " to send, " + std::to_string(receives) + " to receive";
}

// Waits for a key of another rank without blocking the store for other threads, until `gives_up` returns
// true.
std::string await(c10d::Store& store, const std::string& key, Duration timeout, const std::string& what,
                  const std::function<bool()>& gives_up) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  while (!store.check({key})) {
    if (gives_up()) throw std::runtime_error("nccl: the communicator was aborted");
    if (std::chrono::steady_clock::now() > end) throw std::runtime_error(what);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const std::vector<std::uint8_t> value = store.get(key);
  return {value.begin(), value.end()};
}

void set(c10d::Store& store, const std::string& key, const std::string& value) {
  store.set(key, std::vector<std::uint8_t>(value.begin(), value.end()));
}

}  // namespace

Lane::Lane() : thread_([this] { run(); }) {}

Lane::~Lane() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Lane::post(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  changed_.notify_all();
}

void Lane::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ends_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    const std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    lock.lock();
  }
}

Nccl::Nccl(const BackendRequest& request, c10::intrusive_ptr<c10d::Backend> host)
    : Backend(request.rank, request.size), request_(request), host_(std::move(host)) {}

Nccl::~Nccl() {
  bool goes_on = std::uncaught_exceptions() > 0;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& each : works_) {
      const auto work = each.lock();
      goes_on = goes_on || (work && !work->has_ended());
    }
  }
  if (goes_on) abort();
  lanes_.clear();
  collectives_.reset();
}

void Nccl::shutdown() { host_->shutdown(); }

void Nccl::abort() {
  {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    aborting_.notify_all();
  }
  end_all();
  host_->abort();
}

void Nccl::end_all() {
  const std::lock_guard lock(mutex_);
  for (const auto& each : works_) {
    if (const auto work = each.lock()) work->end();
  }
  works_.clear();
}

Nccl::Work Nccl::on_stream(Tensors results, std::function<Work()> start) {
  const auto work = std::make_shared<StreamWork>();
  const StreamWorks before = works_before(current_stream(results.front().device().index()));
  {
    const std::lock_guard lock(mutex_);
    TORCH_CHECK(!aborted_, "NCCL communicator was aborted on rank ", getRank(), ".");
    std::erase_if(works_, [](const auto& each) { return each.expired(); });
    works_.push_back(work);
    if (!collectives_) collectives_ = std::make_unique<Lane>();
    collectives_->post([work, before, start = std::move(start)] {
      try {
        for (const auto& each : before) each->wait();
        if (!work->has_ended()) start()->wait();
      } catch (const PeerLostError&) {
        return;  // the peer's collective waits
      } catch (const TimeoutError&) {
        return;
      } catch (const CancelledError&) {
        return;
      } catch (const CommunicationError& error) {
        // An error of the program; any other exception means that a peer has given up.
        if (dynamic_cast<const MismatchError*>(&error) == nullptr) return;
        work->end(std::current_exception());
        return;
      } catch (...) {
        work->end(std::current_exception());
        return;
      }
      work->end();
    });
  }
  return c10::make_intrusive<CollectiveWork>(getRank(), work, std::move(results));
}

void Nccl::check_device(c10::Device device) {
  TORCH_CHECK(device.type() == kSim, "ProcessGroupNCCL: Tensors must be CUDA and dense; this one is on ",
              device);
  {
    const std::lock_guard lock(mutex_);
    if (device_) {
      TORCH_CHECK(*device_ == device, "nccl: the communicator is of ", *device_, ", and the tensor on ",
                  device);
      return;
    }
  }
  const auto host_name = [&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    return at < request_.hosts.size() ? request_.hosts[at] : std::string();
  };
  set(*request_.store, "device of " + std::to_string(getRank()), device.str());
  for (int rank = 0; rank < getSize(); ++rank) {
    if (rank == getRank() || host_name(rank) != host_name(getRank())) continue;
    const std::string other =
        await(*request_.store, "device of " + std::to_string(rank), request_.timeout,
              "nccl: rank " + std::to_string(rank) + " did not begin its first operation",
              [this] { return is_aborted(); });
    TORCH_CHECK(other != device.str(), "Duplicate GPU detected : rank ", std::min(rank, getRank()),
                " and rank ", std::max(rank, getRank()), " both on CUDA device ", other);
  }
  const std::lock_guard lock(mutex_);
  device_ = device;
}

at::Tensor Nccl::host_of(const at::Tensor& tensor) {
  check_device(tensor.device());
  TORCH_CHECK(tensor.is_non_overlapping_and_dense(), "nccl: tensors must be contiguous");
  return at::from_blob(
      host_address(tensor.mutable_data_ptr()), tensor.sizes(), tensor.strides(), [tensor](void*) {},
      tensor.options().device(at::kCPU));
}

Nccl::Tensors Nccl::host_of(const Tensors& tensors) {
  Tensors host;
  for (const at::Tensor& tensor : tensors) host.push_back(host_of(tensor));
  return host;
}

Nccl::TensorLists Nccl::host_of(const TensorLists& lists) {
  TensorLists host;
  for (const Tensors& tensors : lists) host.push_back(host_of(tensors));
  return host;
}

Nccl::Work Nccl::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  Tensors host = host_of(tensors);
  return on_stream(tensors, [=, this]() mutable { return host_->broadcast(host, options); });
}

Nccl::Work Nccl::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  Tensors host = host_of(tensors);
  return on_stream(tensors, [=, this]() mutable { return host_->allreduce(host, options); });
}

Nccl::Work Nccl::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  Tensors host = host_of(tensors);
  return on_stream(tensors, [=, this]() mutable { return host_->allreduce_coalesced(host, options); });
}

Nccl::Work Nccl::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  Tensors host = host_of(tensors);
  return on_stream(tensors, [=, this]() mutable { return host_->reduce(host, options); });
}

Nccl::Work Nccl::allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  TensorLists to = host_of(outputs);
  Tensors from = host_of(inputs);
  return on_stream(flat(outputs), [=, this]() mutable { return host_->allgather(to, from, options); });
}

Nccl::Work Nccl::_allgather_base(at::Tensor& output, at::Tensor& input,
                                 const c10d::AllgatherOptions& options) {
  at::Tensor to = host_of(output), from = host_of(input);
  return on_stream({output}, [=, this]() mutable { return host_->_allgather_base(to, from, options); });
}

Nccl::Work Nccl::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                 const c10d::AllgatherOptions& options) {
  Tensors to = host_of(outputs), from = host_of(inputs);
  return on_stream(outputs,
                   [=, this]() mutable { return host_->allgather_into_tensor_coalesced(to, from, options); });
}

Nccl::Work Nccl::gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  TensorLists to = host_of(outputs);
  Tensors from = host_of(inputs);
  return on_stream(outputs.empty() ? inputs : flat(outputs),
                   [=, this]() mutable { return host_->gather(to, from, options); });
}

Nccl::Work Nccl::scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) {
  Tensors to = host_of(outputs);
  TensorLists from = host_of(inputs);
  return on_stream(outputs, [=, this]() mutable { return host_->scatter(to, from, options); });
}

Nccl::Work Nccl::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                const c10d::ReduceScatterOptions& options) {
  Tensors to = host_of(outputs);
  TensorLists from = host_of(inputs);
  return on_stream(outputs, [=, this]() mutable { return host_->reduce_scatter(to, from, options); });
}

Nccl::Work Nccl::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                      const c10d::ReduceScatterOptions& options) {
  at::Tensor to = host_of(output), from = host_of(input);
  return on_stream({output}, [=, this]() mutable { return host_->_reduce_scatter_base(to, from, options); });
}

Nccl::Work Nccl::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                 const c10d::ReduceScatterOptions& options) {
  Tensors to = host_of(outputs), from = host_of(inputs);
  return on_stream(outputs,
                   [=, this]() mutable { return host_->reduce_scatter_tensor_coalesced(to, from, options); });
}

Nccl::Work Nccl::alltoall_base(at::Tensor& output, at::Tensor& input,
                               std::vector<std::int64_t>& output_splits,
                               std::vector<std::int64_t>& input_splits,
                               const c10d::AllToAllOptions& options) {
  at::Tensor to = host_of(output), from = host_of(input);
  return on_stream({output}, [=, this]() mutable {
    return host_->alltoall_base(to, from, output_splits, input_splits, options);
  });
}

Nccl::Work Nccl::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  Tensors to = host_of(outputs), from = host_of(inputs);
  return on_stream(outputs, [=, this]() mutable { return host_->alltoall(to, from, options); });
}

Nccl::Work Nccl::barrier(const c10d::BarrierOptions& options) { return host_->barrier(options); }

Nccl::Work Nccl::send(Tensors& tensors, int destination, int /*tag*/) {
  return post(destination, host_of(tensors.at(0)), /*sends=*/true);
}

Nccl::Work Nccl::recv(Tensors& tensors, int source, int /*tag*/) {
  return post(source, host_of(tensors.at(0)), /*sends=*/false);
}

void Nccl::startCoalescing() {
  const std::lock_guard lock(mutex_);
  coalescing_.emplace();
}

Nccl::Work Nccl::endCoalescing() {
  std::map<int, Posted> groups;
  {
    const std::lock_guard lock(mutex_);
    groups = std::move(coalescing_.value());
    coalescing_.reset();
  }
  std::vector<std::shared_future<void>> parts;
  for (auto& [peer, posted] : groups) parts.push_back(start(peer, std::move(posted)));
  return c10::make_intrusive<ExchangeWork>(std::move(parts));
}

Nccl::Work Nccl::post(int peer, const at::Tensor& tensor, bool sends) {
  {
    const std::lock_guard lock(mutex_);
    if (coalescing_) {
      Posted& group = (*coalescing_)[peer];
      (sends ? group.sends : group.receives).push_back(tensor);
      return c10::make_intrusive<ExchangeWork>(std::vector<std::shared_future<void>>());
    }
  }
  Posted alone;
  (sends ? alone.sends : alone.receives).push_back(tensor);
  return c10::make_intrusive<ExchangeWork>(std::vector{start(peer, std::move(alone))});
}

std::shared_future<void> Nccl::start(int peer, Posted posted) {
  const std::lock_guard lock(mutex_);
  const std::int64_t number = posted_[peer]++;
  std::unique_ptr<Lane>& lane = lanes_[peer];
  if (!lane) lane = std::make_unique<Lane>();
  const auto task = std::make_shared<std::packaged_task<void()>>(
      [this, peer, number, posted = std::move(posted)] { exchange(peer, number, posted); });
  std::shared_future<void> done = task->get_future().share();
  lane->post([task] { (*task)(); });
  return done;
}

void Nccl::exchange(int peer, std::int64_t number, const Posted& posted) {
  const std::string first = std::to_string(std::min(peer, getRank())) + "-" +
                            std::to_string(std::max(peer, getRank())) + " exchange " +
                            std::to_string(number) + " of ";
  const std::string own = std::to_string(getRank()), other = std::to_string(peer);
  const std::string mine = counts_of(posted.sends.size(), posted.receives.size());
  set(*request_.store, first + own, mine);
  const std::string theirs = await(
      *request_.store, first + other, request_.timeout,
      "nccl: deadlock: rank " + own + " has " + mine + " with rank " + other + ", which has posted nothing",
      [this] { return is_aborted(); });
  if (theirs != counts_of(posted.receives.size(), posted.sends.size())) {
    throw std::runtime_error("nccl: deadlock: rank " + own + " has posted a group of " + mine +
                             " with rank " + other + ", which has posted a group of " + theirs +
                             " as its own next one; what goes both ways belongs between startCoalescing and "
                             "endCoalescing");
  }
  std::vector<Work> works;
  for (const at::Tensor& tensor : posted.sends) {
    Tensors list{tensor};
    works.push_back(host_->send(list, peer, /*tag=*/0));
  }
  for (const at::Tensor& tensor : posted.receives) {
    Tensors list{tensor};
    works.push_back(host_->recv(list, peer, /*tag=*/0));
  }
  try {
    for (const Work& work : works) work->wait();
  } catch (const MismatchError&) {
    throw;
  } catch (const std::exception&) {
    std::unique_lock lock(mutex_);
    aborting_.wait(lock, [this] { return aborted_; });  // NCCL waits forever for a failed peer
    throw std::runtime_error("nccl: the communicator was aborted");
  }
}

bool Nccl::is_aborted() {
  const std::lock_guard lock(mutex_);
  return aborted_;
}

}  // namespace rondo::sim

// Entry point of engines in modules (rondo/backend/engine/module.h).
extern "C" void rondo_register_backends(rondo::BackendModule& module) {
  module.add("nccl",
             [](const rondo::BackendRequest& request) {
               rondo::BackendRequest own = request;
               own.job_store = {};  // NCCL reports failures to no other rank
               return c10::make_intrusive<rondo::sim::Nccl>(request, request.make("native", own).backend);
             },
             {.cpu_tensors = false, .device_tensors = true, .honours_tags = false});
}
