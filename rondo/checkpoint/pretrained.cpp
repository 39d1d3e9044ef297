#include "rondo/checkpoint/pretrained.h"

#include <torch/types.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "rondo/base/error.h"
#include "rondo/base/printable.h"
#include "rondo/base/text.h"
#include "rondo/checkpoint/weights.h"

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

namespace {

// Returns the texts that the stars of `pattern` match in `name`: each as short as possible except the last.
// Empty if the pattern does not match.
std::optional<std::vector<std::string>> stars_of(std::string_view pattern, std::string_view name) {
  std::vector<std::string> found;
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == name ? std::optional(found) : std::nullopt;
  if (!name.starts_with(pattern.substr(0, star))) return {};
  pattern.remove_prefix(star + 1);
  name.remove_prefix(star);
  // A star is open here: its text ends where the following fixed text begins.
  for (;;) {
    const std::size_t next = pattern.find('*');
    const std::string_view fixed = pattern.substr(0, next);
    if (next == std::string_view::npos) {
      if (!name.ends_with(fixed)) return {};
      found.emplace_back(name.substr(0, name.size() - fixed.size()));
      return found;
    }
    const std::size_t place = name.find(fixed);
    if (place == std::string_view::npos) return {};
    found.emplace_back(name.substr(0, place));
    name.remove_prefix(place + fixed.size());
    pattern.remove_prefix(next + 1);
  }
}

std::string with_stars(const std::string& pattern, const std::vector<std::string>& stars) {
  std::string name;
  std::size_t star = 0;
  for (const char c : pattern) {
    if (c == '*') {
      name += stars[star++];
    } else {
      name += c;
    }
  }
  return name;
}

std::string text_of(const RenameRule& rule) { return str(rule.from, "=", rule.to); }

std::string shape_of(const at::Tensor& tensor) {
  return str(c10::toString(tensor.scalar_type()), "[", join(tensor.sizes(), ", "), "]");
}

struct Given {
  std::string name;  // name in the file
  at::Tensor tensor;
};

// Returns the file's tensors by the model's names.
std::map<std::string, Given> renamed(const NamedTensors& tensors, const std::vector<RenameRule>& rules,
                                     const std::string& file, WeightsReport& report) {
  std::map<std::string, Given> result;
  std::set<const RenameRule*> used;
  for (const NamedTensor& t : tensors) {
    std::string name = t.name;
    for (const RenameRule& rule : rules) {
      const auto stars = stars_of(rule.from, t.name);
      if (!stars) continue;
      used.insert(&rule);
      name = with_stars(rule.to, *stars);
      break;
    }
    if (name.empty()) continue;
    const auto [place, is_new] = result.try_emplace(name, Given{t.name, t.tensor});
    if (!is_new)
      throw DataError(str(file, ": tensors '", printable(place->second.name), "' and '", printable(t.name),
                          "' would both be '", printable(name), "' of the model"));
  }
  for (const RenameRule& rule : rules) {
    if (!used.contains(&rule)) report.idle_rules.push_back(text_of(rule));
  }
  return result;
}

// Returns whether the values may be copied: only floating-point types are converted.
bool converts(const at::Tensor& from, const at::Tensor& to) {
  return (from.is_floating_point() && to.is_floating_point()) || from.scalar_type() == to.scalar_type();
}

// Returns the rule that would find most of the model's missing tensors if the names differ only by a prefix,
// such as "module." of Python's DistributedDataParallel.
std::optional<RenameRule> prefix_rule(const std::vector<std::string>& missing,
                                      const std::vector<std::string>& left_over) {
  std::map<RenameRule, std::size_t> votes;
  const std::set<std::string> wanted(missing.begin(), missing.end());
  for (const std::string& name : left_over) {
    for (std::size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
      if (wanted.contains(name.substr(dot + 1))) ++votes[{name.substr(0, dot + 1) + "*", "*"}];
    }
  }
  const std::set<std::string> given(left_over.begin(), left_over.end());
  for (const std::string& name : missing) {
    for (std::size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
      if (given.contains(name.substr(dot + 1))) ++votes[{"*", name.substr(0, dot + 1) + "*"}];
    }
  }
  const auto best = std::max_element(votes.begin(), votes.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  if (best == votes.end() || 2 * best->second < missing.size()) return {};
  return best->first;
}

}  // namespace

RenameRule parse_rename_rule(const std::string& text) {
  const std::size_t equals = text.find('=');
  const auto stars = [](const std::string& pattern) {
    return std::count(pattern.begin(), pattern.end(), '*');
  };
  if (equals == std::string::npos || equals == 0 || text.find('=', equals + 1) != std::string::npos)
    throw UsageError(str("rule '", printable(text), "': expected FILE=MODEL, as encoder.*=backbone.*"));
  RenameRule rule{text.substr(0, equals), text.substr(equals + 1)};
  if (!rule.to.empty() && stars(rule.from) != stars(rule.to))
    throw UsageError(str("rule '", printable(text), "': ", stars(rule.from), " '*' before the '=' and ",
                         stars(rule.to), " behind it; expected as many"));
  return rule;
}

bool WeightsReport::is_complete() const {
  return missing.empty() && left_over.empty() && other_shapes.empty() && idle_rules.empty();
}

std::string to_text(const WeightsReport& report) {
  std::string text = str(report.loaded.size(), " tensors loaded");
  const auto add = [&](const char* what, const std::vector<std::string>& names) {
    if (!names.empty()) text += str("\n", what, " (", names.size(), "): ", printable(join(names, " "), 4000));
  };
  add("not in the file, left as they are", report.missing);
  add("of the file and not in the model", report.left_over);
  std::vector<std::string> shapes;
  for (const WeightsMatch& match : report.other_shapes)
    shapes.push_back(str(match.name, " (", match.what, ")"));
  add("of other shapes, left as they are", shapes);
  add("rules that match nothing", report.idle_rules);
  return text;
}

WeightsReport load_partial_weights(const std::filesystem::path& path, const NamedTensors& model,
                                   const std::vector<RenameRule>& rules, bool partial) {
  WeightsReport report;
  const std::map<std::string, Given> given = renamed(read_weights(path), rules, path.string(), report);
  std::set<std::string> wanted;
  std::map<const c10::TensorImpl*, bool> reached;  // tensors with several names in the model
  for (const NamedTensor& t : model) {
    wanted.insert(t.name);
    reached[t.tensor.unsafeGetTensorImpl()] |= given.contains(t.name);
  }
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;  // to, from
  std::map<const c10::TensorImpl*, const Given*> sources;
  for (const NamedTensor& t : model) {
    const auto found = given.find(t.name);
    if (found == given.end()) {
      if (!reached.at(t.tensor.unsafeGetTensorImpl())) report.missing.push_back(t.name);
      continue;
    }
    const at::Tensor& from = found->second.tensor;
    if (from.sizes() != t.tensor.sizes() || !converts(from, t.tensor)) {
      report.other_shapes.push_back(
          {t.name, str(shape_of(from), " in the file, ", shape_of(t.tensor), " in the model")});
      continue;
    }
    report.loaded.push_back({t.name, found->second.name});
    const auto [first, is_new] = sources.try_emplace(t.tensor.unsafeGetTensorImpl(), &found->second);
    if (is_new) {
      copies.emplace_back(t.tensor, from);
    } else if (!at::equal(first->second->tensor, from)) {
      throw DataError(str(path.string(), ": tensors '", printable(first->second->name), "' and '",
                          printable(found->second.name), "' differ, and the model has one tensor for both"));
    }
  }
  for (const auto& [name, tensor] : given) {
    if (!wanted.contains(name))
      report.left_over.push_back(name == tensor.name ? name : str(tensor.name, " (as ", name, ")"));
  }
  if (copies.empty() || (!partial && !report.is_complete())) {
    const std::optional<RenameRule> rule = prefix_rule(report.missing, report.left_over);
    throw DataError(str(path.string(), " does not fit the model: ", to_text(report),
                        rule ? str("\nThe names differ by a prefix: give the rule ",
                                   printable(text_of(*rule)), " (init-rename)")
                             : ""));
  }
  const at::NoGradGuard no_gradient;
  for (const auto& [to, from] : copies) to.copy_(from);
  return report;
}

}  // namespace rondo
