#include "rondo/parallel/replicas/replica_exchange.h"

#include <ATen/ScalarOps.h>
#include <torch/types.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/parallel/ddp/hooks/registry.h"
#include "rondo/parallel/ddp/model_agreement.h"

namespace rondo {
namespace {

constexpr const char* kHookName = "hook";  // which one a state is of

using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;

void wait_for(const Works& works, std::optional<Duration> timeout) {
  for (const auto& work : works) {
    if (timeout) {
      work->wait(std::chrono::duration_cast<std::chrono::milliseconds>(*timeout));
    } else {
      work->wait();
    }
  }
}

}  // namespace

WorkerExchange::WorkerExchange(Group group, const torch::nn::Module& model,
                               const WorkerExchangeOptions& options)
    : group_(std::move(group)), options_(options) {
  for (const at::Tensor& parameter : distinct_parameters(model)) {
    if (parameter.requires_grad()) parameters_.push_back(parameter);
  }
  std::size_t room = 0;
  for (std::size_t i = parameters_.size(); i-- > 0;) {
    const at::Tensor& parameter = parameters_[i];
    const bool fits = !packs_.empty() && packs_.back().dtype == parameter.scalar_type() &&
                      packs_.back().device == parameter.device() && parameter.nbytes() <= room;
    if (!fits) {
      packs_.push_back({.dtype = parameter.scalar_type(), .device = parameter.device(), .parameters = {}});
      room = options_.bytes_per_pack.count;
    }
    packs_.back().parameters.push_back(i);
    room -= std::min<std::size_t>(room, parameter.nbytes());
  }
  for (Pack& pack : packs_) {
    std::int64_t elements = 0;
    for (const std::size_t i : pack.parameters) elements += parameters_[i].numel();
    // The ring divides a pack evenly.
    if (options_.ring) elements = (elements + group_.size() - 1) / group_.size() * group_.size();
    pack.flat = at::zeros({elements}, at::TensorOptions().dtype(pack.dtype).device(pack.device));
  }
  if (options_.codec == "none") return;
  hook_ = make_comm_hook(options_.codec, group_);
  verify_same_hook(hook_, group_);
}

void WorkerExchange::combine(double& samples, StepTotals& totals) {
  const at::NoGradGuard no_grad;
  // What each worker says, and which gradients it has: a parameter that one of them uses has one on all.
  at::Tensor said = at::zeros({5 + static_cast<std::int64_t>(parameters_.size())}, at::kDouble);
  double* const numbers = said.data_ptr<double>();
  numbers[0] = samples;
  numbers[1] = totals.loss;
  numbers[2] = static_cast<double>(totals.predictions);
  numbers[3] = static_cast<double>(totals.samples);
  numbers[4] = totals.stop ? 1 : 0;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    numbers[5 + i] = parameters_[i].grad().defined() ? 1 : 0;
  std::vector<at::Tensor> tensors = {said};
  wait_for({group_.backend()->allreduce(tensors)}, options_.timeout);

  // Scaling before the sum keeps half-precision sums in range: the numbers of samples are no factors for
  // them, their shares are.
  // A hook averages over the ranks.
  const double ranks = hook_.run ? group_.size() : 1;
  const at::Tensor share =
      at::native::wrapped_scalar_tensor(numbers[0] > 0 ? ranks * samples / numbers[0] : 0.0);
  for (Pack& pack : packs_) {
    std::int64_t offset = 0;
    for (const std::size_t i : pack.parameters) {
      const at::Tensor place =
          pack.flat.narrow(0, offset, parameters_[i].numel()).view(parameters_[i].sizes());
      const at::Tensor& gradient = parameters_[i].grad();
      // Of samples that do not count the gradient need not be finite.
      if (!gradient.defined() || samples == 0) {
        place.zero_();
      } else {
        at::mul_out(const_cast<at::Tensor&>(place), gradient.is_sparse() ? gradient.to_dense() : gradient,
                    share);
      }
      offset += place.numel();
    }
  }
  hook_.run ? run_hook() : all_reduce_packs();
  samples = numbers[0];
  totals.loss = numbers[1];
  totals.predictions = static_cast<std::int64_t>(numbers[2]);
  totals.samples = static_cast<std::int64_t>(numbers[3]);
  totals.stop = numbers[4] > 0;

  for (Pack& pack : packs_) {
    std::int64_t offset = 0;
    for (const std::size_t i : pack.parameters) {
      const at::Tensor place =
          pack.flat.narrow(0, offset, parameters_[i].numel()).view(parameters_[i].sizes());
      offset += place.numel();
      if (numbers[5 + i] == 0) continue;
      at::Tensor& gradient = parameters_[i].mutable_grad();
      if (!gradient.defined() || gradient.is_sparse()) gradient = at::empty_like(parameters_[i]);
      gradient.copy_(place);
    }
  }
}

void WorkerExchange::run_hook() {
  std::vector<BucketFuture> results;
  for (std::size_t index = 0; index < packs_.size(); ++index) {
    const Pack& pack = packs_[index];
    std::vector<at::Tensor> members;
    for (const std::size_t i : pack.parameters) members.push_back(parameters_[i]);
    GradBucket bucket(index, index + 1 == packs_.size(), pack.flat, std::move(members), pack.parameters);
    results.push_back(hook_.run(bucket));
  }
  for (std::size_t index = 0; index < packs_.size(); ++index) {
    const at::Tensor mean = results[index].wait(options_.timeout);
    if (!mean.is_same(packs_[index].flat)) packs_[index].flat.copy_(mean.view({-1}));
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
  const std::string begins_anew = "the codec's memory (error feedback) begins anew: its saved state ";
  if (of_ranks.empty()) return begins_anew + "is not there";
  if (of_ranks.size() != static_cast<std::size_t>(group_.size()))
    return str(begins_anew, "is of ", of_ranks.size(), " ranks, this run has ", group_.size());
  CommState own = of_ranks[static_cast<std::size_t>(group_.rank())];
  const auto hook = own.extract(kHookName);
  const std::string saved = hook.empty() ? "none" : tensor_to_text(hook.mapped());
  if (saved != hook_.name) return str(begins_anew, "is of '", saved, "', this model has '", hook_.name, "'");
  hook_.restore(own);
  return {};
}

void WorkerExchange::all_reduce_packs() {
  Works works;
  for (Pack& pack : packs_) {
    if (options_.ring) {
      at::Tensor part = at::empty({pack.flat.numel() / group_.size()}, pack.flat.options());
      wait_for({group_.backend()->_reduce_scatter_base(part, pack.flat)}, options_.timeout);
      works.push_back(group_.backend()->_allgather_base(pack.flat, part));
    } else {
      std::vector<at::Tensor> tensors = {pack.flat};
      works.push_back(group_.backend()->allreduce(tensors));
    }
  }
  wait_for(works, options_.timeout);
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
