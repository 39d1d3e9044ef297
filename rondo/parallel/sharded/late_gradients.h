#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "rondo/nn/partition.h"
#include "rondo/parallel/ddp/gradient_hooks.h"
#include "rondo/strategy/reducer.h"

namespace rondo {

// Notices gradients that come after those of their unit have been sent off, which would be lost: a module
// outside the unit has used the parameter. Training throws UsageError then, out of backward().
class LateGradients final : public Reducer {
 public:
  // `sent` says of a number in `units` whether its gradients have left in this pass.
  LateGradients(const std::vector<ModelUnit>& units, std::function<bool(std::size_t unit)> sent);

  void add(at::Tensor& parameter) override;
  void finalize() override {}

 private:
  struct Place {
    std::size_t unit;
    std::string unit_name;
    std::string name;
  };

  std::map<const c10::TensorImpl*, Place> places_;
  std::function<bool(std::size_t unit)> sent_;
  GradientHooks hooks_;  // last: they call add()
};

}  // namespace rondo
