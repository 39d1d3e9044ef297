#include "rondo/checkpoint/pretrained.h"

#include <torch/types.h>

#include <algorithm>
#include <map>
#include <set>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/checkpoint/indexed_weights.h"

namespace rondo {
namespace {

struct Found {
  std::string name_in_file;
  at::Tensor tensor;
};

class Pretrained {
 public:
  Pretrained(const std::filesystem::path& path, const PretrainedNames& names) : path_(path.string()) {
    for (const NamedTensor& t : read_safetensors(path)) {
      if (names.is_ignored(t.name)) continue;
      const std::string name = names.in_model(t.name);
      const bool turned = t.tensor.dim() == 2 && names.is_transposed(name);
      const auto [place, is_new] =
          tensors_.try_emplace(name, Found{t.name, turned ? t.tensor.t() : t.tensor});
      if (!is_new) {
        throw DataError(str(path_, " has tensor '", place->first, "' twice: as '", place->second.name_in_file,
                            "' and as '", t.name, "'"));
      }
    }
    for (const auto& [further, name] : names.shared) settle_shared(further, name);
  }

  const Found* find(const std::string& name) const {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? nullptr : &found->second;
  }
  bool has_part(const std::string& part) const {
    const auto first = tensors_.lower_bound(part);
    return first != tensors_.end() && first->first.starts_with(part);
  }
  std::vector<std::string> unused(const std::set<std::string>& used) const {
    std::vector<std::string> names;
    for (const auto& [name, found] : tensors_) {
      if (!used.contains(name)) names.push_back(found.name_in_file);
    }
    return names;
  }
  [[noreturn]] void fail(const std::string& what) const { throw DataError(str(path_, ": ", what)); }

 private:
  void settle_shared(const std::string& further, const std::string& name) {
    const auto other = tensors_.find(further);
    if (other == tensors_.end()) return;
    const auto [place, is_new] = tensors_.try_emplace(name, other->second);
    if (!is_new && !at::equal(place->second.tensor, other->second.tensor)) {
      fail(str("tensor '", other->second.name_in_file, "' differs from '", place->second.name_in_file,
               "', with which the model shares it"));
    }
    tensors_.erase(other);
  }

  std::string path_;
  std::map<std::string, Found> tensors_;  // by the model's names
};

}  // namespace

PretrainedReport load_pretrained(const std::filesystem::path& path, const NamedTensors& model,
                                 const PretrainedNames& names) {
  const Pretrained file(path, names);
  PretrainedReport report;
  for (const std::string& part : names.optional_parts) {
    const bool in_model = std::any_of(model.begin(), model.end(),
                                      [&](const NamedTensor& t) { return t.name.starts_with(part); });
    if (in_model && !file.has_part(part)) report.missing_parts.push_back(part);
  }
  std::set<std::string> used;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;  // to, from
  for (const NamedTensor& wanted : model) {
    const Found* found = file.find(wanted.name);
    if (!found) {
      if (std::any_of(report.missing_parts.begin(), report.missing_parts.end(),
                      [&](const std::string& part) { return wanted.name.starts_with(part); })) {
        continue;
      }
      file.fail(str("tensor '", wanted.name, "' of the model is missing"));
    }
    if (found->tensor.sizes() != wanted.tensor.sizes()) {
      file.fail(str("tensor '", found->name_in_file, "' has shape [", join(found->tensor.sizes(), ", "),
                    "], and [", join(wanted.tensor.sizes(), ", "), "] in the model"));
    }
    if (found->tensor.is_floating_point() != wanted.tensor.is_floating_point()) {
      file.fail(str("tensor '", found->name_in_file, "' has type ",
                    c10::toString(found->tensor.scalar_type()), ", and ",
                    c10::toString(wanted.tensor.scalar_type()), " in the model"));
    }
    used.insert(wanted.name);
    copies.emplace_back(wanted.tensor, found->tensor);
  }
  report.unused = file.unused(used);
  const at::NoGradGuard no_gradient;
  for (const auto& [to, from] : copies) to.copy_(from);
  return report;
}

}  // namespace rondo
