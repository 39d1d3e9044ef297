#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace rondo {

// Whether the loss of this name can compare an output with a target. Each throws UsageError with the name,
// both sizes and what is allowed: libtorch itself broadcasts some of them, to a wrong loss.

// Of losses of elements.
void check_same_sizes(const std::string& loss, const at::Tensor& output, const at::Tensor& target);
// Of losses of classes: an int64 target with the output's sizes without the last one.
void check_classes(const std::string& loss, const at::Tensor& output, const at::Tensor& target);
// The same where the sizes before the last may be arranged in another way.
void check_flat_classes(const std::string& loss, const at::Tensor& output, const at::Tensor& target);

}  // namespace rondo
