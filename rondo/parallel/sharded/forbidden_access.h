#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

#include <string>
#include <vector>

namespace rondo {

// Makes every access to the data of the storage an error with this message.
void forbid_access(c10::StorageImpl& storage, const std::string& message);

// Takes forbid_access() back.
void permit_access(c10::StorageImpl& storage);

// Placeholders in `.grad` of parameters whose combined gradients are elsewhere. An optimizer, or torch's
// clip_grad_norm_, that was given these parameters would find no gradient and do nothing: with the
// placeholders it throws an error that names the calls to make. One thread.
class ForbiddenGradients {
 public:
  explicit ForbiddenGradients(std::vector<at::Tensor> parameters);

  void lay();   // where there is no gradient
  void lift();  // removes them
  // Whether somebody has removed them since lay(), as the model's zero_grad() does.
  bool cleared() const;

 private:
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> gradients_;  // by parameter
  bool laid_ = false;
};

}  // namespace rondo
