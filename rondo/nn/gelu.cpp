#include "rondo/nn/gelu.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/types.h>

#include <algorithm>

namespace rondo::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// 2u = kLinear * x + kCubic * x^3.
constexpr double kLinear = 1.5957691216057308;  // 2 sqrt(2/pi)
constexpr double kCubic = kLinear * 0.044715;

// Elements computed at a time: the intermediate results of a chunk stay in the cache.
constexpr std::int64_t kChunk = 1 << 17;

// Calls `compute(first, count)` for all chunks of `count` elements.
template <class Compute>
void for_chunks(std::int64_t count, const Compute& compute) {
  for (std::int64_t first = 0; first < count; first += kChunk)
    compute(first, std::min(kChunk, count - first));
}

// Writes sigmoid(2u) of `x` to `result`. `linear` is a tensor of kLinear.
void write_gate(const at::Tensor& x, const at::Tensor& linear, at::Tensor result) {
  at::addcmul_out(result, linear, x, x, kCubic);
  at::sigmoid_out(result, result.mul_(x));
}

at::Tensor forward_of(const at::Tensor& input) {
  const at::Tensor x = input.reshape(-1);
  at::Tensor output = at::empty_like(x);
  const at::Tensor linear = at::scalar_tensor(kLinear, x.options());
  for_chunks(x.numel(), [&](std::int64_t first, std::int64_t count) {
    const at::Tensor values = x.narrow(0, first, count);
    at::Tensor chunk = output.narrow(0, first, count);
    write_gate(values, linear, chunk);
    chunk.mul_(values);
  });
  return output.view(input.sizes());
}

// With gate = sigmoid(2u) and slope = x * d(2u)/dx, the derivative is gate * (1 + slope * (1 - gate)).
at::Tensor backward_of(const at::Tensor& gradient, const at::Tensor& input) {
  const at::Tensor x = input.reshape(-1), of_output = gradient.reshape(-1);
  at::Tensor of_input = at::empty_like(x);
  at::Tensor gates = at::empty({std::min(kChunk, x.numel())}, x.options());
  const at::Tensor linear = at::scalar_tensor(kLinear, x.options());
  for_chunks(x.numel(), [&](std::int64_t first, std::int64_t count) {
    const at::Tensor values = x.narrow(0, first, count);
    at::Tensor gate = gates.narrow(0, 0, count);
    write_gate(values, linear, gate);
    at::Tensor chunk = of_input.narrow(0, first, count);
    at::addcmul_out(chunk, linear, values, values, 3 * kCubic);
    chunk.mul_(values);
    chunk.addcmul_(chunk, gate, -1);
    at::addcmul_out(chunk, gate, gate, chunk);
    chunk.mul_(of_output.narrow(0, first, count));
  });
  return of_input.view(input.sizes());
}

class GeluTanh : public torch::autograd::Function<GeluTanh> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input) {
    context->save_for_backward({input});
    return forward_of(input);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::Tensor input = context->get_saved_variables()[0];
    // A second derivative needs operators that autograd records.
    if (at::GradMode::is_enabled()) return {at::gelu_backward(gradients[0], input, "tanh")};
    return {backward_of(gradients[0], input)};
  }
};

}  // namespace

at::Tensor gelu_tanh(const at::Tensor& input) {
  if (!input.device().is_cpu() || input.scalar_type() != at::kFloat) return at::gelu(input, "tanh");
  return GeluTanh::apply(input);
}

}  // namespace rondo::nn
