#include "rondo/checkpoint/named_tensors.h"

#include <torch/nn/module.h>
#include <torch/script.h>

#include <map>
#include <set>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

std::string describe(const at::Tensor& tensor) {
  return str("dtype ", c10::toString(tensor.scalar_type()), " and shape [", join(tensor.sizes(), ", "), "]");
}

std::map<std::string_view, const at::Tensor*> by_name(const NamedTensors& tensors) {
  std::map<std::string_view, const at::Tensor*> index;
  for (const NamedTensor& t : tensors) index[t.name] = &t.tensor;
  return index;
}

// For each tensor of `target` the tensor to copy from, or none where a shared one was already dealt with.
class Matcher {
 public:
  Matcher(const NamedTensors& source, const std::string& what) : available_(by_name(source)), what_(what) {}

  at::Tensor match(const NamedTensor& wanted) {
    const auto found = available_.find(wanted.name);
    const auto shared = shared_.find(wanted.tensor.unsafeGetTensorImpl());
    if (found == available_.end()) {
      if (shared != shared_.end()) return {};
      fail(wanted.name, "is missing in it");
    }
    const at::Tensor& given = *found->second;
    if (given.sizes() != wanted.tensor.sizes() || given.scalar_type() != wanted.tensor.scalar_type()) {
      fail(wanted.name,
           str("has ", describe(given), " in it, and ", describe(wanted.tensor), " in the model"));
    }
    used_.insert(wanted.name);
    if (shared == shared_.end()) {
      shared_.emplace(wanted.tensor.unsafeGetTensorImpl(), given);
      return given;
    }
    if (!given.is_same(shared->second) && !at::equal(given, shared->second)) {
      fail(wanted.name, "differs in it from a tensor that the model shares with it");
    }
    return {};
  }

  void require_all_used(const NamedTensors& source) const {
    for (const NamedTensor& t : source) {
      if (!used_.contains(t.name)) fail(t.name, "is in it and not in the model");
    }
  }

 private:
  [[noreturn]] void fail(const std::string& name, const std::string& how) const {
    throw DataError(str(what_, " is of another model: tensor '", name, "' ", how));
  }

  std::map<std::string_view, const at::Tensor*> available_;
  std::map<const c10::TensorImpl*, at::Tensor>
      shared_;  // tensors of the target met so far, with their sources
  std::set<std::string> used_;
  const std::string& what_;
};

}  // namespace

NamedTensors named_tensors(const torch::nn::Module& module, const std::string& prefix) {
  NamedTensors result;
  for (const auto& p : module.named_parameters()) result.push_back({prefix + p.key(), p.value()});
  for (const auto& b : module.named_buffers()) result.push_back({prefix + b.key(), b.value()});
  return result;
}

NamedTensors named_tensors(const torch::jit::Module& module, const std::string& prefix) {
  NamedTensors result;
  for (const auto& p : module.named_parameters()) result.push_back({prefix + p.name, p.value});
  for (const auto& b : module.named_buffers()) result.push_back({prefix + b.name, b.value});
  return result;
}

std::function<void()> prepare_assign(const NamedTensors& target, const NamedTensors& source,
                                     const std::string& what, const TakeTensor& take) {
  Matcher matcher(source, what);
  std::vector<std::pair<NamedTensor, at::Tensor>> copies;  // to, from
  for (const NamedTensor& t : target) {
    const at::Tensor given = matcher.match(t);
    if (given.defined()) copies.emplace_back(t, given);
  }
  matcher.require_all_used(source);
  return [copies = std::move(copies), take] {
    const at::NoGradGuard no_gradient;
    for (const auto& [to, from] : copies) {
      if (!take || !take(to.name, from)) to.tensor.copy_(from);
    }
  };
}

}  // namespace rondo
