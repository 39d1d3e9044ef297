#include "rondo/parallel/ddp/gradient_hooks.h"

#include <torch/autograd.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/types.h>

namespace rondo {
namespace {

struct Hook final : torch::autograd::PostAccumulateGradHook {
  void operator()(const at::Tensor& parameter) override {
    if (previous) (*previous)(parameter);
    if (!*target) return;
    at::Tensor handle = parameter;
    (*target)->add(handle);
  }

  std::shared_ptr<Reducer*> target;
  std::unique_ptr<torch::autograd::PostAccumulateGradHook> previous;
};

}  // namespace

GradientHooks::GradientHooks(std::vector<at::Tensor> parameters, Reducer& reducer)
    : parameters_(std::move(parameters)), target_(std::make_shared<Reducer*>(&reducer)) {
  for (const at::Tensor& parameter : parameters_) {
    auto hook = std::make_unique<Hook>();
    hook->target = target_;
    hook->previous = std::move(torch::autograd::impl::post_acc_grad_hooks(parameter));
    torch::autograd::impl::set_post_acc_grad_hooks(parameter, std::move(hook));
  }
}

GradientHooks::~GradientHooks() {
  *target_ = nullptr;
  for (const at::Tensor& parameter : parameters_) {
    auto& slot = torch::autograd::impl::post_acc_grad_hooks(parameter);
    auto* hook = dynamic_cast<Hook*>(slot.get());
    if (!hook || hook->target != target_) continue;
    std::unique_ptr<torch::autograd::PostAccumulateGradHook> previous = std::move(hook->previous);
    slot = std::move(previous);
  }
}

}  // namespace rondo
