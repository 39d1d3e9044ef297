#include "rondo/nn/wrap_rules.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/nn/linear.h"

namespace rondo {
namespace {

constexpr const char* kAllowedRules =
    "all, type:CLASS, name:PATTERN (with * and ?) or parameters:COUNT, several joined by commas";

// Work is linear in the text for each '*'.
bool fits_pattern(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0;
  std::size_t star = std::string_view::npos, after_star = 0;
  while (t < text.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t]) && pattern[p] != '*') {
      ++p;
      ++t;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      after_star = t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++after_star;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

// "torch::nn::LinearImpl" is also LinearImpl, torch::nn::Linear and Linear.
bool is_of_class(std::string type, const std::string& wanted) {
  const auto fits = [&](const std::string& name) {
    return name == wanted || name.substr(name.rfind(':') + 1) == wanted;
  };
  if (fits(type)) return true;
  if (!type.ends_with("Impl")) return false;
  type.resize(type.size() - 4);
  return fits(type);
}

// A rule for torch::nn::Linear is one for nn::Linear too.
bool is_of_class(const torch::nn::Module& layer, const std::string& wanted) {
  return is_of_class(layer.name(), wanted) || (dynamic_cast<const nn::LinearImpl*>(&layer) != nullptr &&
                                               is_of_class("torch::nn::LinearImpl", wanted));
}

std::int64_t parameter_count(const torch::nn::Module& layer) {
  std::int64_t count = 0;
  for (const at::Tensor& parameter : layer.parameters()) count += parameter.numel();
  return count;
}

NamedWrapRule parse_rule(const std::string& rule) {
  const auto fail = [&] { throw UsageError(str("wrapping rule '", rule, "': expected ", kAllowedRules)); };
  if (rule == "all") return [](const std::string&, const torch::nn::Module&) { return true; };
  const std::size_t colon = rule.find(':');
  const std::string kind = rule.substr(0, colon);
  const std::string value = colon == std::string::npos ? "" : rule.substr(colon + 1);
  if (value.empty()) fail();
  if (kind == "type") {
    return [value](const std::string&, const torch::nn::Module& layer) { return is_of_class(layer, value); };
  }
  if (kind == "name")
    return [value](const std::string& name, const torch::nn::Module&) { return fits_pattern(value, name); };
  std::int64_t least = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), least);
  if (kind != "parameters" || error != std::errc() || end != value.data() + value.size() || least < 1) fail();
  return
      [least](const std::string&, const torch::nn::Module& layer) { return parameter_count(layer) >= least; };
}

}  // namespace

NamedWrapRule parse_wrap_rules(const std::vector<std::string>& rules) {
  std::vector<NamedWrapRule> parsed;
  for (const std::string& rule : rules) parsed.push_back(parse_rule(rule));
  return [parsed](const std::string& name, const torch::nn::Module& layer) {
    return std::any_of(parsed.begin(), parsed.end(),
                       [&](const NamedWrapRule& rule) { return rule(name, layer); });
  };
}

int wrap_units(torch::nn::Module& model, const std::vector<std::string>& rules) {
  const NamedWrapRule rule = parse_wrap_rules(rules);
  std::vector<std::string> asked;
  const int wrapped = wrap_units(model, [&](const std::string& name, const torch::nn::Module& layer) {
    asked.push_back(str(name, " (", layer.name(), ", ", parameter_count(layer), " parameters)"));
    return rule(name, layer);
  });
  if (wrapped > 0) return wrapped;
  if (asked.empty()) {
    throw UsageError(
        "wrapping rules: the model has no layer that can become a unit: those are the layers with parameters "
        "of a torch::nn::Sequential; other modules declare theirs as rondo::Unit");
  }
  throw UsageError(str("no layer fits the wrapping rules ", join(rules, ","),
                       "; layers that can become units: ", join(asked, ", ")));
}

}  // namespace rondo
