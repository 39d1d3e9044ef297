#include "rondo/parallel/gradients/gradient_hooks.h"

#include <torch/autograd.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/types.h>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

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

}  // namespace rondo
