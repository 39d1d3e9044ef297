#include "rondo/parallel/replicas/replica_exchange.h"

#include <torch/types.h>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/parallel/gradients/model_agreement.h"
#include "rondo/parallel/hooks/default_hooks.h"
#include "rondo/parallel/hooks/registry.h"
#include "rondo/parallel/schedule/communication_queue.h"
#include "rondo/parallel/schedule/policy.h"

namespace rondo {
namespace {

constexpr const char* kHookName = "hook";  // key of the hook's name in a state

}  // namespace

WorkerExchange::WorkerExchange(Group group, const torch::nn::Module& model,
                               const WorkerExchangeOptions& options)
    : group_(std::move(group)), timeout_(options.timeout) {
  for (ModelTensor& parameter : without_repetitions(tensors_of(model)).parameters) {
    if (parameter.tensor.requires_grad()) parameters_.push_back(std::move(parameter));
  }
  if (options.ring) {
    hook_ = ring_hook(group_);
  } else if (options.codec != "none") {
    hook_ = make_comm_hook(options.codec, group_);
  }
  verify_same_hook(hook_.name, group_);
  const Bytes size = options.bytes_per_pack;
  const BucketPlan plan =
      plan_buckets(gradient_specs(parameters_), last_first(parameters_.size()), size, size);
  for (Bucket& bucket : make_buckets(parameters_, plan)) {
    transfers_.push_back(std::make_unique<FlatAllReduce>(std::move(bucket), weight_source_, group_, hook_,
                                                         /*as_view=*/false));
  }
}

void WorkerExchange::combine(double& samples, StepTotals& totals) {
  const at::NoGradGuard no_grad;
  // Totals of this worker, and flags of its gradients: a parameter that any worker uses gets a gradient on
  // all.
  at::Tensor said = at::zeros({5 + static_cast<std::int64_t>(parameters_.size())}, at::kDouble);
  double* const numbers = said.data_ptr<double>();
  numbers[0] = samples;
  numbers[1] = totals.loss;
  numbers[2] = static_cast<double>(totals.predictions);
  numbers[3] = static_cast<double>(totals.samples);
  numbers[4] = totals.stop ? 1 : 0;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    numbers[5 + i] = parameters_[i].tensor.grad().defined() ? 1 : 0;
  start_sum(group_, said).wait(timeout_);

  // Gradients are scaled before the sum by this rank's share of the samples, because the number of samples
  // may exceed the range of half precision.
  weight_.scale = numbers[0] > 0 ? samples / numbers[0] : 0.0;
  std::vector<bool> untouched;
  for (std::size_t i = 0; i < parameters_.size(); ++i) untouched.push_back(numbers[5 + i] == 0);
  // A new queue for each step: after a failure it leaves messages to the engine, and does not wait for a lost
  // worker as CommunicationQueue::abandon() would.
  CommunicationQueue queue(make_policy({.name = "fifo"}), /*in_flight_limit=*/{}, /*leader=*/nullptr,
                           group_.traits().progresses_in_background);
  try {
    for (const auto& transfer : transfers_) {
      transfer->begin();
      take_gradients(*transfer);
      transfer->launch(queue, /*order=*/0,
                       {.describe =
                            [this, &bucket = transfer->bucket()] {
                              return str(place_of(group_), ": all-reduce of ", bucket.name());
                            },
                        .timeout = timeout_});
    }
    for (const auto& transfer : transfers_) transfer->finish(untouched);
  } catch (...) {
    for (const auto& transfer : transfers_) transfer->abandon();
    throw;
  }
  samples = numbers[0];
  totals.loss = numbers[1];
  totals.predictions = static_cast<std::int64_t>(numbers[2]);
  totals.samples = static_cast<std::int64_t>(numbers[3]);
  totals.stop = numbers[4] > 0;
}

void WorkerExchange::take_gradients(FlatAllReduce& transfer) {
  const std::vector<ModelTensor>& members = transfer.bucket().parameters;
  for (std::size_t member = 0; member < members.size(); ++member) {
    at::Tensor& gradient = members[member].tensor.mutable_grad();
    if (gradient.defined() && gradient.is_sparse()) gradient = gradient.to_dense();
    gradient.defined() ? transfer.take(member) : transfer.take_missing(member);
  }
}

CommState WorkerExchange::communication_state() const {
  CommState state;
  if (!hook_.save) return state;
  state = hook_.save();
  state[kHookName] = text_to_tensor(hook_.name);
  return state;
}

std::string WorkerExchange::restore_communication(const std::vector<CommState>& of_ranks) {
  if (!hook_.restore) return {};
  return codec_restart_warning(restore_own_state(of_ranks, group_.rank(), group_.size(), [&](CommState own) {
    std::string mismatch = codec_mismatch(text_in(own, kHookName), hook_.name);
    own.erase(kHookName);
    if (mismatch.empty()) hook_.restore(own);
    return mismatch;
  }));
}

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
  // A replica may be one step ahead of replicas that still read, but never two, because all replicas wait for
  // each other in combine().
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
