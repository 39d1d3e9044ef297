#include "rondo/parallel/tpu/torus.h"

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>
#include <tuple>

#include "rondo/backend/engine/store_adapter.h"
#include "rondo/backend/point_to_point.h"
#include "rondo/backend/requests/dense_tensor.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/collective/algorithms/registry.h"
#include "rondo/collective/executor.h"
#include "rondo/env/sources/tpu_slice.h"
#include "rondo/parallel/hooks/codec_hook.h"

namespace rondo {
namespace {

// A collective that the engine's thread completes.
class TorusWork final : public c10d::Work {
 public:
  TorusWork(OperationKind operation, Reduction reduction, DenseTensor tensor)
      : c10d::Work(-1, c10d::OpType::UNKNOWN),
        operation_(operation),
        reduction_(reduction),
        tensor_(std::move(tensor)) {}
  OperationKind operation() const { return operation_; }
  Reduction reduction() const { return reduction_; }
  const DenseTensor& tensor() const { return tensor_; }
  void complete(std::exception_ptr error = nullptr) { finish(std::move(error)); }

 private:
  const OperationKind operation_;
  const Reduction reduction_;
  DenseTensor tensor_;
};

// An engine for communication hooks that runs collectives of one rank over a torus, one after the other, in
// its own thread.
class TorusEngine final : public c10d::Backend {
 public:
  TorusEngine(const Context& context, const Torus& torus)
      : c10d::Backend(context.rank(), context.world_size()),
        context_(context),
        torus_(torus),
        group_(context.new_group(everyone(context))),
        channel_(group_.backend(), std::make_shared<StoreFromC10d>(group_.store()), "torus", Duration::max()),
        thread_([this](const std::stop_token& stop) { serve(stop); }) {}

  ~TorusEngine() override {
    {
      const std::lock_guard lock(mutex_);
      thread_.request_stop();
    }
    wakeup_.notify_all();
  }
  TorusEngine(const TorusEngine&) = delete;
  TorusEngine& operator=(const TorusEngine&) = delete;

  const std::string getBackendName() const override { return "torus"; }

  // All-reduces one tensor per rank in place, with SUM or AVG.
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override {
    const bool averages = options.reduceOp == c10d::ReduceOp::AVG;
    return start(OperationKind::all_reduce, averages ? Reduction::average : Reduction::sum, tensors.front());
  }
  // Gathers bytes on the CPU.
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& outputs, at::Tensor& input,
                                                 const c10d::AllgatherOptions& /*options*/) override {
    outputs.narrow(0, getRank() * input.numel(), input.numel()).copy_(input);
    return start(OperationKind::all_gather, Reduction::sum, outputs);
  }

 private:
  static std::vector<int> everyone(const Context& context) {
    std::vector<int> ranks(static_cast<std::size_t>(context.world_size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }

  c10::intrusive_ptr<c10d::Work> start(OperationKind operation, Reduction reduction,
                                       const at::Tensor& tensor) {
    // Runs on the caller's stream, which produces the gradients; copies a device's tensor to the CPU.
    auto work = c10::make_intrusive<TorusWork>(operation, reduction, dense(tensor, "all_reduce", true));
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(work);
    }
    wakeup_.notify_all();
    return work;
  }

  void serve(const std::stop_token& stop) {
    context_.enter();
    while (true) {
      c10::intrusive_ptr<TorusWork> work;
      {
        std::unique_lock lock(mutex_);
        wakeup_.wait(lock, [&] { return stop.stop_requested() || !waiting_.empty(); });
        if (waiting_.empty()) return;
        work = std::move(waiting_.front());
        waiting_.pop_front();
      }
      try {
        run(work->operation(), work->reduction(), work->tensor().data);
        work->tensor().copy_back();
        work->complete();
      } catch (...) {
        work->complete(std::current_exception());
      }
    }
  }

  void run(OperationKind operation, Reduction reduction, const at::Tensor& flat) {
    const bool reduces = operation == OperationKind::all_reduce;
    const ElementType element = element_type(flat.scalar_type(), "all_reduce", reduces);
    auto& executor = executors_[{operation, reduction, element.type, flat.nbytes()}];
    if (!executor) {
      collective::ScheduleRequest request{.operation = operation,
                                          .rank = group_.rank(),
                                          .world = group_.size(),
                                          .bytes = Bytes{flat.nbytes()},
                                          .element_bytes = element_bytes(element.type),
                                          .rows = torus_.rows,
                                          .in_rank_order = reduces && context_.deterministic()};
      executor = std::make_unique<collective::Executor>(collective::make_schedule("torus_2d", request),
                                                        element.type, reduction);
    }
    executor->run(channel_, {static_cast<std::byte*>(flat.data_ptr()), flat.nbytes()}, {});
  }

  Context context_;
  Torus torus_;
  Group group_;  // separate group, because the world's group runs other collectives meanwhile
  PointToPointChannel channel_;
  std::map<std::tuple<OperationKind, Reduction, DType, std::size_t>, std::unique_ptr<collective::Executor>>
      executors_;
  std::mutex mutex_;  // protects waiting_
  std::condition_variable wakeup_;
  std::deque<c10::intrusive_ptr<TorusWork>> waiting_;
  std::jthread thread_;  // last member, so that the thread ends before the members it uses
};

}  // namespace

Torus find_torus(const std::string& text, int ranks, const env::EnvironmentMap& environment) {
  if (text != "auto") {
    const std::vector<int> axes = env::parse_axes(text, "torus");
    if (axes.size() != 2) throw UsageError(str("torus ", text, ": expected rows and columns, as 2x2"));
    if (static_cast<long long>(axes[0]) * axes[1] != ranks) {
      throw UsageError(str("torus ", text, " is of ", static_cast<long long>(axes[0]) * axes[1],
                           " ranks, but this job has ", ranks));
    }
    return {axes[0], axes[1]};
  }
  if (const auto slice = env::read_tpu_slice(environment)) {
    std::vector<int> axes = slice->topology;
    std::erase(axes, 1);
    if (axes.size() == 2 && static_cast<long long>(axes[0]) * axes[1] == ranks) return {axes[0], axes[1]};
  }
  Torus torus;
  for (int divisor = 1; divisor * divisor <= ranks; ++divisor) {
    if (ranks % divisor == 0) torus.rows = divisor;
  }
  torus.columns = ranks / torus.rows;
  return torus;
}

CommHook torus_hook(const Context& context, const Torus& torus, const std::string& codec) {
  auto engine = c10::make_intrusive<TorusEngine>(context, torus);
  const std::string name = str("torus ", torus.rows, "x", torus.columns);
  if (codec != "none") {
    CommHook hook = codec_hook(engine, codec);
    hook.name = str(name, ", ", hook.name);
    return hook;
  }
  return {.name = name, .run = [engine](GradBucket& bucket) {
            std::vector<at::Tensor> message = {bucket.buffer()};
            c10d::AllreduceOptions options;
            options.reduceOp = c10d::ReduceOp::AVG;
            return BucketFuture(engine->allreduce(message, options), bucket.buffer());
          }};
}

}  // namespace rondo
