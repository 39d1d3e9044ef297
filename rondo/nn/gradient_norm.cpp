#include "rondo/nn/gradient_norm.h"

#include <torch/types.h>

#include <cmath>
#include <map>

namespace rondo {

at::Tensor gradient_values(const at::Tensor& parameter) {
  at::Tensor gradient = parameter.grad();
  if (!gradient.defined() || !gradient.is_sparse()) return gradient;
  gradient = gradient.coalesce();
  parameter.mutable_grad() = gradient;
  return gradient._values();
}

namespace {

// Row length for sums in float32. Over this many elements a vectorised float32 norm has a negligible error,
// and float64 takes five times as long.
constexpr std::int64_t kElementsOfARow = 1024;

at::Tensor sum_of_squared(const at::Tensor& norms) { return norms.to(at::kDouble).square().sum(); }

at::Tensor sum_on_cpu(const at::Tensor& tensor) {
  if (tensor.scalar_type() != at::kFloat || !tensor.is_non_overlapping_and_dense())
    return at::linalg_vector_norm(tensor, 2, {}, false, at::kDouble).square();
  const std::int64_t rows = tensor.numel() / kElementsOfARow, in_rows = rows * kElementsOfARow;
  const at::Tensor flat = tensor.as_strided({tensor.numel()}, {1});
  at::Tensor rest =
      sum_of_squared(at::linalg_vector_norm(flat.narrow(0, in_rows, tensor.numel() - in_rows), 2));
  if (rows == 0) return rest;
  const at::Tensor table = flat.narrow(0, 0, in_rows).view({rows, kElementsOfARow});
  return rest + sum_of_squared(at::linalg_vector_norm(table, 2, std::int64_t{1}));
}

// Sums tensors of one device in one launch. Devices add in a tree, so float32 is precise enough.
at::Tensor sum_on_device(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> norms;
  for (const at::Tensor& norm : at::_foreach_norm(tensors, 2)) norms.push_back(norm.to(at::kDouble));
  return sum_of_squared(at::stack(norms));
}

}  // namespace

std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : parameters) {
    const at::Tensor gradient = gradient_values(parameter);
    if (gradient.defined() && gradient.numel() > 0) gradients.push_back(gradient.detach());
  }
  return gradients;
}

double sum_of_squares(const std::vector<at::Tensor>& tensors) {
  const at::NoGradGuard no_grad;
  double sum = 0;
  std::map<std::string, std::vector<at::Tensor>> on_devices;
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor real = tensor.is_complex() ? at::view_as_real(tensor.resolve_conj()) : tensor;
    if (real.is_cpu()) {
      sum += sum_on_cpu(real).item<double>();
    } else {
      on_devices[real.device().str()].push_back(real);
    }
  }
  for (const auto& [device, members] : on_devices) sum += sum_on_device(members).item<double>();
  return sum;
}

void scale_to_norm(const std::vector<at::Tensor>& gradients, double norm, double max_norm) {
  const at::NoGradGuard no_grad;
  const double scale = max_norm / (norm + 1e-6);
  if (scale >= 1) return;
  for (const at::Tensor& gradient : gradients) gradient.mul_(scale);
}

double clip_gradients(const std::vector<at::Tensor>& parameters, double max_norm) {
  const std::vector<at::Tensor> gradients = gradients_of(parameters);
  const double norm = std::sqrt(sum_of_squares(gradients));
  scale_to_norm(gradients, norm, max_norm);
  return norm;
}

}  // namespace rondo
