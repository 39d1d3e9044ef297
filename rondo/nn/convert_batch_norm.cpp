#include <torch/nn/modules/container/sequential.h>
#include <torch/types.h>

#include <functional>
#include <string>
#include <vector>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/nn/sync_batch_norm.h"

namespace rondo {
namespace {

using torch::nn::Module;

// `module` as a SyncBatchNorm with the same tensors; null when it is no BatchNorm.
std::shared_ptr<SyncBatchNormImpl> synchronised(const Module& module, const Group& group) {
  if (const auto* norm = dynamic_cast<const torch::nn::BatchNorm1dImpl*>(&module))
    return std::make_shared<SyncBatchNormImpl>(*norm, group);
  if (const auto* norm = dynamic_cast<const torch::nn::BatchNorm2dImpl*>(&module))
    return std::make_shared<SyncBatchNormImpl>(*norm, group);
  if (const auto* norm = dynamic_cast<const torch::nn::BatchNorm3dImpl*>(&module))
    return std::make_shared<SyncBatchNormImpl>(*norm, group);
  return nullptr;
}

// Finds everything to do before anything is done, so that an error leaves the model as it was.
class Conversion {
 public:
  Conversion(Module& model, const Group& group) : group_(group) { visit(model, ""); }

  int run() const {
    for (const auto& action : actions_) action();
    return static_cast<int>(actions_.size());
  }

 private:
  void visit(Module& module, const std::string& path) {
    if (auto* norm = dynamic_cast<SyncBatchNormImpl*>(&module)) {
      actions_.push_back([norm, this] { norm->set_group(group_); });
    } else if (synchronised(module, group_)) {
      throw UsageError(
          str("the batch normalisation ", path.empty() ? "that is the whole model" : "'" + path + "'",
              " cannot be made one over all ranks: it is a member of its own type. Declare it as "
              "rondo::SyncBatchNorm, or put it into a torch::nn::Sequential"));
    }
    auto* sequence = dynamic_cast<torch::nn::SequentialImpl*>(&module);
    for (const auto& child : module.named_children()) {
      const std::string name = path.empty() ? child.key() : path + "." + child.key();
      if (auto norm = sequence ? synchronised(*child.value(), group_) : nullptr) {
        actions_.push_back([sequence, norm, old = child.value(), key = child.key()] {
          for (torch::nn::AnyModule& slot : *sequence) {
            if (slot.ptr() == old) slot = torch::nn::AnyModule(norm);
          }
          sequence->replace_module(key, norm);
        });
      } else {
        visit(*child.value(), name);
      }
    }
  }

  const Group& group_;
  std::vector<std::function<void()>> actions_;
};

}  // namespace

int synchronise_batch_norms(Module& model, const Group& group) { return Conversion(model, group).run(); }

}  // namespace rondo
