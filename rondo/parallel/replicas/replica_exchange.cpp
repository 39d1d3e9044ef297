#include "rondo/parallel/replicas/replica_exchange.h"

#include "rondo/base/time.h"
#include "rondo/nn/model_tensors.h"

namespace rondo {
namespace {

void add_step(ReplicaExchange::Step& sum, const ReplicaExchange::Step& step) {
  sum.samples += step.samples;
  sum.totals.loss += step.totals.loss;
  sum.totals.predictions += step.totals.predictions;
  sum.totals.samples += step.totals.samples;
  sum.totals.stop = sum.totals.stop || step.totals.stop;
}

ReplicaGradients::Options options_between(ReplicaGradients::Options options, bool workers) {
  options.to_first_only = options.to_first_only || workers;
  return options;
}

}  // namespace

ReplicaExchange::ReplicaExchange(ReplicaThreads& threads, const std::vector<torch::nn::Module*>& models,
                                 const ReplicaGradients::Options& options,
                                 std::unique_ptr<WorkerExchange> workers)
    : threads_(threads),
      gradients_(threads, models, options_between(options, workers != nullptr)),
      workers_(std::move(workers)),
      slots_(models.size()) {
  for (const at::Tensor& parameter : distinct_parameters(*models.front())) {
    if (parameter.requires_grad()) bytes_.count += parameter.nbytes();
  }
}

StepTotals ReplicaExchange::combine(const Step& mine) {
  const int replica = threads_.current();
  const std::int64_t begin = monotonic_ns();
  Slot& own = slots_[static_cast<std::size_t>(replica)];
  // A replica may be one step ahead of those that still read, never two: combine() begins with a meeting.
  const std::size_t turn = ++own.turns % 2;
  own.steps[turn] = mine;
  gradients_.combine(mine.samples);
  Step sum;
  for (const Slot& slot : slots_) add_step(sum, slot.steps[turn]);
  if (workers_) {
    if (replica == 0) {
      joint_ = sum;
      workers_->combine(joint_.samples, joint_.totals);
    }
    gradients_.copy_from_first();
    sum = joint_;
  }
  if (replica == 0) {
    const std::int64_t met = gradients_.met_ns();
    const std::int64_t end = monotonic_ns();
    times_ = {std::chrono::nanoseconds(end - met), std::chrono::nanoseconds(end - begin)};
    spans_ = {{.name = "all_reduce",
               .lane = Lane::communication,
               .begin_ns = met,
               .end_ns = end,
               .bucket = 0,
               .bytes = bytes_.count,
               .queued_ns = begin,
               .exposed_ns = end - begin,
               .waited_ns = begin}};
  }
  return sum.totals;
}

}  // namespace rondo
