#include "apps/bench/dev/emulated_accelerator.h"

#include <torch/autograd.h>
#include <torch/types.h>

#include <thread>

namespace rondo::bench {
namespace {

struct EmulatedUnit : torch::autograd::Function<EmulatedUnit> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& values,
                            std::int64_t forward_ns, std::int64_t backward_ns) {
    context->saved_data["backward"] = backward_ns;
    std::this_thread::sleep_for(std::chrono::nanoseconds(forward_ns));
    return values.view_as(values);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(context->saved_data["backward"].toInt()));
    return {gradients[0], at::Tensor(), at::Tensor()};
  }
};

struct EmulatedWeightedUnit : torch::autograd::Function<EmulatedWeightedUnit> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& values,
                            const at::Tensor& weight, std::int64_t forward_ns, std::int64_t input_ns,
                            std::int64_t weight_ns) {
    context->saved_data["input"] = input_ns;
    context->saved_data["weight"] = weight_ns;
    context->save_for_backward({values});  // as in a layer, whose weight gradient needs the input
    std::this_thread::sleep_for(std::chrono::nanoseconds(forward_ns));
    return values + weight;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    at::Tensor of_values, of_weight;
    if (context->needs_input_grad(0)) {
      std::this_thread::sleep_for(std::chrono::nanoseconds(context->saved_data["input"].toInt()));
      of_values = gradients[0].clone();  // a separate tensor, as in a layer
    }
    if (context->needs_input_grad(1)) {
      std::this_thread::sleep_for(std::chrono::nanoseconds(context->saved_data["weight"].toInt()));
      of_weight = gradients[0].sum(0);
    }
    return {of_values, of_weight, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

std::int64_t nanoseconds_of(Duration duration) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
}

}  // namespace

EmulatedTimes equal_times(double milliseconds) {
  const auto time =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double, std::milli>(milliseconds));
  return {time, time, time};
}

Model emulated_model(torch::nn::Sequential layers) {
  return {.name = "emulated",
          .config = nlohmann::json::object(),
          .module = layers.ptr(),
          .forward = [raw = layers.get()](const at::Tensor& input) { return raw->forward(input); }};
}

at::Tensor emulated_unit(const at::Tensor& values, const EmulatedTimes& times) {
  return EmulatedUnit::apply(values, nanoseconds_of(times.forward),
                             nanoseconds_of(times.input_gradient + times.weight_gradient));
}

at::Tensor emulated_unit(const at::Tensor& values, const at::Tensor& weight, const EmulatedTimes& times) {
  return EmulatedWeightedUnit::apply(values, weight, nanoseconds_of(times.forward),
                                     nanoseconds_of(times.input_gradient),
                                     nanoseconds_of(times.weight_gradient));
}

}  // namespace rondo::bench
