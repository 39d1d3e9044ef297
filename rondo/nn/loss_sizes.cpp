#include "rondo/nn/loss_sizes.h"

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/nn/model_tensors.h"

namespace rondo {
namespace {

[[noreturn]] void refuse_sizes(const std::string& loss, const at::Tensor& output, const at::Tensor& target,
                               const char* allowed) {
  throw UsageError(str("loss ", loss, ": an output of ", describe_shape(output), " and a target of ",
                       describe_shape(target), "; ", allowed));
}

constexpr const char* kClasses =
    "the target is int64 and has the output's sizes without the last one, the classes";

}  // namespace

void check_same_sizes(const std::string& loss, const at::Tensor& output, const at::Tensor& target) {
  if (output.sizes() != target.sizes()) refuse_sizes(loss, output, target, "both must have the same sizes");
}

void check_classes(const std::string& loss, const at::Tensor& output, const at::Tensor& target) {
  const bool leads =
      output.dim() == target.dim() + 1 && output.sizes().slice(0, target.dim()) == target.sizes();
  if (!leads || target.scalar_type() != at::kLong) refuse_sizes(loss, output, target, kClasses);
}

void check_flat_classes(const std::string& loss, const at::Tensor& output, const at::Tensor& target) {
  if (output.dim() == 0 || output.numel() != target.numel() * output.size(-1) ||
      target.scalar_type() != at::kLong)
    refuse_sizes(loss, output, target, kClasses);
}

}  // namespace rondo
