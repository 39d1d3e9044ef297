#include "rondo/checkpoint/assign_tensors.h"

#include <torch/types.h>

#include <map>
#include <set>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/checkpoint/stored_tensor.h"

namespace rondo {
namespace {

std::string describe(at::ScalarType dtype, at::IntArrayRef sizes) {
  return str("dtype ", c10::toString(dtype), " and shape [", join(sizes, ", "), "]");
}

std::map<std::string_view, const StoredTensor*> by_name(const StoredTensors& tensors) {
  std::map<std::string_view, const StoredTensor*> index;
  for (const StoredTensor& t : tensors) index[t.name] = &t;
  return index;
}

// For each tensor of `target` the tensor to copy from, or none where a shared one was already dealt with.
class Matcher {
 public:
  Matcher(const StoredTensors& source, const std::string& what) : available_(by_name(source)), what_(what) {}

  // `to` is where the elements go. Null where they have come already.
  const StoredTensor* match(const NamedTensor& wanted, const Shard& to) {
    const auto found = available_.find(wanted.name);
    const auto shared = shared_.find(wanted.tensor.unsafeGetTensorImpl());
    if (found == available_.end()) {
      if (shared != shared_.end()) return nullptr;
      fail(wanted.name, "is missing in it");
    }
    const StoredTensor& given = *found->second;
    const at::ScalarType dtype = to.local.scalar_type();
    if (given.sizes != to.global_sizes || given.dtype != dtype) {
      fail(wanted.name, str("has ", describe(given.dtype, given.sizes), " in it, and ",
                            describe(dtype, to.global_sizes), " in the model"));
    }
    used_.insert(wanted.name);
    if (shared == shared_.end()) {
      shared_.emplace(wanted.tensor.unsafeGetTensorImpl(), &given);
      return &given;
    }
    if (!given.is_same(*shared->second) && !at::equal(given.full(), shared->second->full())) {
      fail(wanted.name, "differs in it from a tensor that the model shares with it");
    }
    return nullptr;
  }

  void require_all_used(const StoredTensors& source) const {
    for (const StoredTensor& t : source) {
      if (!used_.contains(t.name)) fail(t.name, "is in it and not in the model");
    }
  }

 private:
  [[noreturn]] void fail(const std::string& name, const std::string& how) const {
    throw DataError(str(what_, " is of another model: tensor '", name, "' ", how));
  }

  std::map<std::string_view, const StoredTensor*> available_;
  std::map<const c10::TensorImpl*, const StoredTensor*>
      shared_;  // tensors of the target met so far, with their sources
  std::set<std::string> used_;
  const std::string& what_;
};

}  // namespace

std::function<void()> prepare_assign(const NamedTensors& target, const NamedTensors& source,
                                     const std::string& what, const std::vector<Shard>& shards) {
  return prepare_assign(target, stored_tensors(source), what, shards);
}

std::function<void()> prepare_assign(const NamedTensors& target, const StoredTensors& source,
                                     const std::string& what, const std::vector<Shard>& shards) {
  Matcher matcher(source, what);
  // A shard stands under one name for a tensor that the model has under several.
  const auto shared =
      shared_names(target, [&](const std::string& name) { return find_shard(shards, name) != nullptr; });
  std::vector<std::pair<Shard, StoredTensor>> copies;  // to, from
  for (const NamedTensor& t : target) {
    const auto further = shared.find(t.name);
    const Shard* const shard = find_shard(shards, further != shared.end() ? further->second : t.name);
    const Shard to = shard != nullptr ? *shard : full_shard(t.name, t.tensor);
    if (const StoredTensor* const given = matcher.match(t, to)) copies.emplace_back(to, *given);
  }
  matcher.require_all_used(source);
  return [copies = std::move(copies)] {
    const at::NoGradGuard no_gradient;
    for (const auto& [to, from] : copies) to.local.copy_(from.read(to));
  };
}

}  // namespace rondo
