#include "rondo/nn/wrap.h"

#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/nn/linear.h"
#include "rondo/nn/unit.h"

namespace rondo {
namespace {

constexpr const char* kNoRule = "wrap_units: the rule is empty; give one, as wrap_all() or wrap_from(bytes)";

std::uint64_t parameter_bytes(const torch::nn::Module& module) {
  std::uint64_t bytes = 0;
  for (const at::Tensor& parameter : module.parameters()) bytes += parameter.nbytes();
  return bytes;
}

// A replacement in a Sequential for the layer that it holds. It registers all that the layer has registered,
// so names and module traversals stay the same.
class WrappedLayer final : public torch::nn::Module, public UnitBase {
 public:
  explicit WrappedLayer(torch::nn::AnyModule layer)
      : torch::nn::Module(layer.ptr()->name()), layer_(std::move(layer)) {
    const std::shared_ptr<torch::nn::Module> held = layer_.ptr();
    for (const auto& entry : held->named_parameters(/*recurse=*/false)) {
      register_parameter(entry.key(), entry.value(), entry.value().requires_grad());
    }
    for (const auto& entry : held->named_buffers(/*recurse=*/false))
      register_buffer(entry.key(), entry.value());
    for (const auto& entry : held->named_children()) register_module(entry.key(), entry.value());
  }

  UnitState& unit_state() override { return state_; }
  at::Tensor forward(at::Tensor input) {
    return unit_detail::run(
        state_, [this](at::Tensor& value) { return layer_.forward<at::Tensor>(value); },
        std::tuple<at::Tensor>(std::move(input)));
  }
  // Forwards the mode, because the layer itself is no registered child.
  void train(bool on = true) override {
    torch::nn::Module::train(on);
    layer_.ptr()->train(on);
  }

 private:
  torch::nn::AnyModule layer_;
  UnitState state_{*this};
};

int wrap_children(torch::nn::SequentialImpl& sequential, const std::string& path, const NamedWrapRule& rule) {
  int wrapped = 0;
  const std::vector<std::string> names = sequential.named_children().keys();
  std::size_t index = 0;
  for (auto child = sequential.begin(); child != sequential.end(); ++child, ++index) {
    const std::shared_ptr<torch::nn::Module> layer = child->ptr();
    const bool is_unit = dynamic_cast<const UnitBase*>(layer.get()) != nullptr;
    if (is_unit || layer->parameters().empty() || !rule(path + names[index], *layer)) continue;
    const auto unit = std::make_shared<WrappedLayer>(*child);
    *child = torch::nn::AnyModule(unit);
    sequential.replace_module(names[index], unit);
    ++wrapped;
  }
  return wrapped;
}

// Wraps layers below `module`; `path` is the module's path followed by a dot.
int wrap_below(torch::nn::Module& module, const std::string& path, const NamedWrapRule& rule) {
  int wrapped = 0;
  for (const auto& child : module.named_children())
    wrapped += wrap_below(*child.value(), path + child.key() + ".", rule);
  if (auto* sequential = dynamic_cast<torch::nn::SequentialImpl*>(&module))
    wrapped += wrap_children(*sequential, path, rule);
  return wrapped;
}

}  // namespace

WrapRule wrap_all() {
  return [](const torch::nn::Module&) { return true; };
}

WrapRule wrap_from(Bytes parameters) {
  return [parameters](const torch::nn::Module& layer) { return parameter_bytes(layer) >= parameters.count; };
}

int wrap_units(torch::nn::Module& model, const NamedWrapRule& rule) {
  if (!rule) throw UsageError(kNoRule);
  return wrap_below(model, "", rule);
}

int wrap_units(torch::nn::Module& model, const WrapRule& rule) {
  if (!rule) throw UsageError(kNoRule);
  return wrap_units(model, [&](const std::string&, const torch::nn::Module& layer) { return rule(layer); });
}

namespace {

constexpr const char* kAllowedRules =
    "all, type:CLASS, name:PATTERN (with * and ?) or parameters:COUNT, several joined by commas";

// Matches '*' and '?'. The work is linear in the text for each '*'.
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

// Returns whether `wanted` names the type: "torch::nn::LinearImpl" is also LinearImpl, torch::nn::Linear and
// Linear.
bool is_of_class(std::string type, const std::string& wanted) {
  const auto fits = [&](const std::string& name) {
    return name == wanted || name.substr(name.rfind(':') + 1) == wanted;
  };
  if (fits(type)) return true;
  if (!type.ends_with("Impl")) return false;
  type.resize(type.size() - 4);
  return fits(type);
}

// A rule for torch::nn::Linear also matches nn::Linear.
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
