// Convolutions, which libtorch requires a device without CUDA's libraries to implement.
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <torch/library.h>

#include <array>
#include <tuple>

#include "tests/sim/device.h"
#include "tests/sim/host_alias.h"
#include "tests/sim/launch.h"

namespace rondo::sim {
namespace {

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight,
                       const std::optional<at::Tensor>& bias, at::IntArrayRef stride, at::IntArrayRef padding,
                       at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding,
                       std::int64_t groups) {
  const c10::DeviceIndex device = input.device().index();
  HostAliases aliases;
  std::vector<Use> uses{{input, false}, {weight, false}};
  std::optional<at::Tensor> host_bias;
  if (bias && bias->defined()) {
    uses.push_back({*bias, false});
    host_bias = aliases.alias_of(*bias);
  }
  on_launch({"aten::convolution_overrideable", current_stream(device), std::move(uses)});
  return aliases.on_device(at::convolution(aliases.alias_of(input), aliases.alias_of(weight), host_bias,
                                           stride, padding, dilation, transposed, output_padding, groups),
                           device);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight, at::IntArrayRef stride,
    at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding,
    std::int64_t groups, std::array<bool, 3> wanted) {
  const c10::DeviceIndex device = input.device().index();
  HostAliases aliases;
  on_launch({"aten::convolution_backward_overrideable",
             current_stream(device),
             {{gradient, false}, {input, false}, {weight, false}}});
  const std::array<std::int64_t, 1> bias_sizes{transposed ? weight.size(1) * groups : weight.size(0)};
  auto [of_input, of_weight, of_bias] = at::convolution_backward(
      aliases.alias_of(gradient), aliases.alias_of(input), aliases.alias_of(weight),
      at::IntArrayRef(bias_sizes), stride, padding, dilation, transposed, output_padding, groups, wanted);
  return {aliases.on_device(of_input, device), aliases.on_device(of_weight, device),
          aliases.on_device(of_bias, device)};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("convolution_overrideable", convolution);
  library.impl("convolution_backward_overrideable", convolution_backward);
}

}  // namespace
}  // namespace rondo::sim
