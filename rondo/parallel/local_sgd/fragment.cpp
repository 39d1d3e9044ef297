#include "rondo/parallel/local_sgd/fragment.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>

#include <algorithm>
#include <utility>

namespace rondo {
namespace {

at::ScalarType dtype_of_average(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

}  // namespace

at::Tensor Fragment::flat() const {
  const at::NoGradGuard no_grad;
  const at::ScalarType dtype = dtype_of_average(tensors_.front().scalar_type());
  std::vector<at::Tensor> parts;
  parts.reserve(tensors_.size());
  for (const at::Tensor& tensor : tensors_) parts.push_back(tensor.detach().reshape({-1}).to(dtype));
  return at::cat(parts);
}

template <class Function>
void Fragment::for_each_part(const at::Tensor& flat, Function function) const {
  const at::NoGradGuard no_grad;
  std::int64_t begin = 0;
  for (const at::Tensor& tensor : tensors_) {
    function(tensor, flat.narrow(0, begin, tensor.numel()).view(tensor.sizes()));
    begin += tensor.numel();
  }
}

void Fragment::assign(const at::Tensor& flat) const {
  for_each_part(flat, [](const at::Tensor& tensor, const at::Tensor& part) { tensor.copy_(part); });
}

void Fragment::advance(const at::Tensor& flat) const {
  for_each_part(flat, [](const at::Tensor& tensor, const at::Tensor& part) { tensor.add_(part); });
}

std::vector<Fragment> cut_into_fragments(const std::vector<at::Tensor>& tensors, std::int64_t count,
                                         std::int64_t first_moment) {
  std::vector<at::Tensor> averaged;
  std::uint64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.is_floating_point() || tensor.numel() == 0) continue;
    averaged.push_back(tensor);
    bytes += tensor.nbytes();
  }
  const auto parts = static_cast<std::uint64_t>(count);
  std::vector<Fragment> fragments;
  std::vector<at::Tensor> current;
  std::int64_t moment = 0;
  const auto close = [&] {
    if (!current.empty()) fragments.emplace_back(std::exchange(current, {}), first_moment + moment);
  };
  std::uint64_t before = 0;
  for (const at::Tensor& tensor : averaged) {
    // A tensor belongs to the part in which its middle lies.
    const std::uint64_t middle = before + tensor.nbytes() / 2;
    const auto part =
        static_cast<std::int64_t>(std::min(parts - 1, middle * parts / std::max<std::uint64_t>(bytes, 1)));
    const bool other_dtype = !current.empty() && current.front().scalar_type() != tensor.scalar_type();
    if (part != moment || other_dtype) close();
    moment = part;
    current.push_back(tensor);
    before += tensor.nbytes();
  }
  close();
  return fragments;
}

}  // namespace rondo
