#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

#include <string>
#include <vector>

namespace rondo {

// Makes every access to the data of the storage an error with this message.
void forbid_access(c10::StorageImpl& storage, const std::string& message);

// Reverts forbid_access().
void permit_access(c10::StorageImpl& storage);

// Placeholders in `.grad` of parameters whose reduced gradients are elsewhere. An optimizer, or torch's
// clip_grad_norm_, that was given these parameters would find no gradient and do nothing. With the
// placeholders it throws an error that names the calls to make. Not thread-safe.
class ForbiddenGradients {
 public:
  explicit ForbiddenGradients(std::vector<at::Tensor> parameters);

  void lay();   // sets the placeholders where there is no gradient
  void lift();  // removes the placeholders
  // Returns true if a placeholder was removed since lay(), as the model's zero_grad() does.
  bool cleared() const;

 private:
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> gradients_;  // by parameter
  bool laid_ = false;
};

}  // namespace rondo
