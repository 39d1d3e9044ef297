#include "rondo/parallel/gradients/reducer.h"

#include <torch/autograd.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/types.h>

#include <utility>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"

namespace rondo {
namespace {

struct Hook final : torch::autograd::PostAccumulateGradHook {
  void operator()(const at::Tensor& parameter) override {
    if (previous) (*previous)(parameter);
    if (*listener != nullptr) (*listener)->arrived(number);
  }

  std::shared_ptr<GradientListener*> listener;
  std::size_t number = 0;
  bool is_sole = true;
  std::unique_ptr<torch::autograd::PostAccumulateGradHook> previous;
};

}  // namespace

GradientHooks::GradientHooks(const std::vector<ModelTensor>& parameters, GradientListener& listener,
                             bool is_sole)
    : parameters_(parameters), listener_(std::make_shared<GradientListener*>(&listener)) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    auto hook = std::make_unique<Hook>();
    hook->listener = listener_;
    hook->number = i;
    hook->is_sole = is_sole;
    const at::Tensor& tensor = parameters_[i].tensor;
    hook->previous = std::move(torch::autograd::impl::post_acc_grad_hooks(tensor));
    torch::autograd::impl::set_post_acc_grad_hooks(tensor, std::move(hook));
  }
}

GradientHooks::~GradientHooks() {
  *listener_ = nullptr;
  for (const ModelTensor& parameter : parameters_) {
    auto& slot = torch::autograd::impl::post_acc_grad_hooks(parameter.tensor);
    auto* hook = dynamic_cast<Hook*>(slot.get());
    if (!hook || hook->listener != listener_) continue;
    std::unique_ptr<torch::autograd::PostAccumulateGradHook> previous = std::move(hook->previous);
    slot = std::move(previous);
  }
}

void require_unprepared(const std::vector<ModelTensor>& parameters) {
  for (const ModelTensor& parameter : parameters) {
    const auto* hook =
        dynamic_cast<const Hook*>(torch::autograd::impl::post_acc_grad_hooks(parameter.tensor).get());
    while (hook && (*hook->listener == nullptr || !hook->is_sole))
      hook = dynamic_cast<const Hook*>(hook->previous.get());
    if (!hook) continue;
    throw UsageError(str("parameter '", parameter.name,
                         "' is of a module that is prepared already: use what the first prepare(), "
                         "fully_shard() or DistributedDataParallel made of it, or destroy that before"));
  }
}

void Reducer::begin(const std::vector<std::size_t>& gradients) {
  buckets_.clear();
  for (const std::size_t awaited : gradients) buckets_.push_back({.awaited = awaited});
  next_ = 0;
  weight_.reset();
}

bool Reducer::add(std::size_t bucket) {
  Progress& own = buckets_[bucket];
  return own.awaited > 0 && --own.awaited == 0;
}

void Reducer::complete(std::size_t begin, std::size_t end) {
  for (std::size_t bucket = begin; bucket < end; ++bucket) {
    if (!std::exchange(buckets_[bucket].complete, true)) buckets_[bucket].ready_ns = monotonic_ns();
  }
  for (; next_ < buckets_.size(); ++next_) {
    const std::size_t bucket = in_turn(next_);
    if (!buckets_[bucket].complete) return;
    send(bucket);
  }
}

const GradientWeight& Reducer::announced_weight(bool divide_by_active) {
  if (!weight_) {
    announcement_.ensure_started();
    weight_ = announcement_.gradient_weight(divide_by_active);
  }
  return *weight_;
}

std::vector<int> count_ranks(const std::vector<bool>& flags, const Group& group) {
  const std::vector<int> own(flags.begin(), flags.end());
  std::vector<at::Tensor> message = {torch::tensor(own, at::kInt).to(group.traits().control_device())};
  group.backend()->allreduce(message)->wait();
  const at::Tensor counts = message.front().cpu();
  const int* const first = counts.const_data_ptr<int>();
  return {first, first + counts.numel()};
}

}  // namespace rondo
