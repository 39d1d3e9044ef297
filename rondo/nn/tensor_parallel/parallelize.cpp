#include "rondo/nn/tensor_parallel/parallelize.h"

#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/nn/parallel_communication.h"
#include "rondo/nn/sample_dropout.h"
#include "rondo/nn/tensor_parallel/layers.h"

namespace rondo {
namespace {

using torch::nn::Module;

constexpr std::array<std::pair<ParallelStyle, const char*>, 6> kStyles = {{
    {ParallelStyle::column, "column"},
    {ParallelStyle::gathered_column, "gathered_column"},
    {ParallelStyle::row, "row"},
    {ParallelStyle::vocabulary, "vocabulary"},
    {ParallelStyle::heads, "heads"},
    {ParallelStyle::sequence, "sequence"},
}};

// A child of a Sequential in the type that can be divided; empty when it has none.
template <class Impl, class Plain>
bool exchange(torch::nn::AnyModule& slot, const Module& layer, std::shared_ptr<Module>& exchanged) {
  const auto* plain = dynamic_cast<const Plain*>(&layer);
  if (plain == nullptr) return false;
  auto parallel = std::make_shared<Impl>(*plain);
  slot = torch::nn::AnyModule(parallel);
  exchanged = std::move(parallel);
  return true;
}

// Takes the rules through a model, one module after the other.
class Parallelization {
 public:
  Parallelization(const ParallelRules& rules, const Group& group)
      : rules_(rules), division_(group, rules.sequence && has_peers(group)) {}

  Division run(Module& model) {
    for (const auto& parameter : model.named_parameters()) known_.insert(parameter.key());
    visit(model, "", nullptr);
    const std::set<std::size_t> of_layers = fitted_;
    for (const auto& parameter : model.named_parameters())
      cut_parameter(parameter.key(), parameter.value(), of_layers);
    for (std::size_t i = 0; i < rules_.rules.size(); ++i) {
      if (fitted_.contains(i)) continue;
      throw UsageError(str("the pattern '", rules_.rules[i].pattern, "' (", to_text(rules_.rules[i].style),
                           ") fits no layer and no parameter of the model; the model has ",
                           join(std::vector<std::string>(known_.begin(), known_.end()), ", ")));
    }
    if (rules_.divided_outputs) division_.divide_outputs();
    return std::move(division_);
  }

 private:
  template <class Counts>
  const ParallelRules::Rule* rule_of(const std::string& path, const Counts& counts) {
    for (std::size_t i = 0; i < rules_.rules.size(); ++i) {
      if (!counts(i) || !fits_pattern(path, rules_.rules[i].pattern)) continue;
      fitted_.insert(i);
      return &rules_.rules[i];
    }
    return nullptr;
  }

  // `above` is the rule by which a layer around was divided: it is not meant for what is in that.
  void visit(Module& module, const std::string& path, const ParallelRules::Rule* above) {
    const auto* dropout = dynamic_cast<const torch::nn::DropoutImpl*>(&module);
    if (dropout != nullptr && dropout->options.p() > 0 && has_peers(division_.group())) {
      throw UsageError(str("'", path, "' is a torch::nn::Dropout, which draws otherwise on every rank of a ",
                           "divided model; use rondo::SampleDropout"));
    }
    const std::vector<std::string> names = module.named_children().keys();
    std::size_t index = 0;
    for (const std::string& name : names) {
      const std::string below = path.empty() ? name : str(path, ".", name);
      std::shared_ptr<Module> child = module.named_children()[name];
      const ParallelRules::Rule* const rule =
          rule_of(below, [&](std::size_t i) { return &rules_.rules[i] != above; });
      if (rule != nullptr) {
        if (auto* sequence = dynamic_cast<torch::nn::SequentialImpl*>(&module))
          child = exchanged(*sequence, index, name, child);
        auto* layer = dynamic_cast<ParallelLayer*>(child.get());
        if (layer == nullptr) {
          throw UsageError(str("'", below, "' is a ", child->name(), ", which cannot be divided as '",
                               rule->pattern, "' = ", to_text(rule->style),
                               " says: declare it as rondo::ParallelLinear, ParallelEmbedding or "
                               "ParallelLayerNorm, or put it into a torch::nn::Sequential"));
        }
        layer->divide(rule->style, division_, below);
      }
      visit(*child, below, rule != nullptr ? rule : above);
      ++index;
    }
  }

  static std::shared_ptr<Module> exchanged(torch::nn::SequentialImpl& sequence, std::size_t index,
                                           const std::string& name, const std::shared_ptr<Module>& child) {
    if (dynamic_cast<ParallelLayer*>(child.get()) != nullptr) return child;
    torch::nn::AnyModule& slot = *(sequence.begin() + static_cast<std::ptrdiff_t>(index));
    std::shared_ptr<Module> result = child;
    const bool done = exchange<ParallelLinearImpl, torch::nn::LinearImpl>(slot, *child, result) ||
                      exchange<ParallelEmbeddingImpl, torch::nn::EmbeddingImpl>(slot, *child, result) ||
                      exchange<ParallelLayerNormImpl, torch::nn::LayerNormImpl>(slot, *child, result);
    if (done) sequence.replace_module(name, result);
    return result;
  }

  // A parameter of no layer, by its first dimension or its last: of rules that are of no layer.
  void cut_parameter(const std::string& path, const at::Tensor& parameter,
                     const std::set<std::size_t>& of_layers) {
    const ParallelRules::Rule* const rule =
        rule_of(path, [&](std::size_t i) { return !of_layers.contains(i); });
    if (rule == nullptr || division_.find(parameter) != nullptr) return;
    at::Tensor handle = parameter;
    division_.cut(handle, rule->style == ParallelStyle::row ? parameter.dim() - 1 : 0, path);
  }

  const ParallelRules& rules_;
  Division division_;
  std::set<std::string> known_;
  std::set<std::size_t> fitted_;
};

}  // namespace

Division parallelize(Module& model, const ParallelRules& rules, const Group& group) {
  return Parallelization(rules, group).run(model);
}

std::string to_text(ParallelStyle style) {
  for (const auto& [known, text] : kStyles) {
    if (known == style) return text;
  }
  return "unknown";
}

ParallelStyle parse_parallel_style(const std::string& text, const std::string& what) {
  std::vector<std::string> known;
  for (const auto& [style, name] : kStyles) {
    if (text == name) return style;
    known.emplace_back(name);
  }
  throw UsageError(str(what, ": '", text, "' is no way to divide a layer; there are ", join(known, ", ")));
}

std::int64_t Division::share(std::int64_t whole, const std::string& what, const std::string& things) const {
  const std::int64_t ranks = group_.member() ? group_.size() : 1;
  if (whole % ranks == 0) return whole / ranks;
  throw UsageError(str("'", what, "' has ", whole, " ", things, ", which ", ranks, " ranks do not divide"));
}

void Division::cut(at::Tensor& parameter, std::int64_t dimension, const std::string& what,
                   std::int64_t blocks) {
  if (find(parameter) != nullptr) return;  // two layers share it
  if (dimension >= parameter.dim())
    throw UsageError(str("'", what, "' has a parameter of ", parameter.dim(),
                         " dimensions, which is not divided "
                         "by dimension ",
                         dimension));
  Shard address = full_shard("", parameter);
  address.local.reset();
  if (dimension == 0) {
    address.blocks = blocks;
    address.sizes[0] /= blocks;
  }
  const auto d = static_cast<std::size_t>(dimension);
  const std::int64_t length =
      share(address.sizes[d], what, dimension == 0 ? "outputs, tokens or rows" : "inputs");
  address.offsets[d] = std::max(0, group_.rank()) * length;
  address.sizes[d] = length;
  if (has_peers(group_)) {
    const at::NoGradGuard no_grad;
    // A copy, so that the whole one goes.
    parameter.set_data(rondo::cut(parameter.detach(), address).clone(at::MemoryFormat::Contiguous));
    cuts_.emplace_back(parameter, std::move(address));
  }
}

const Shard* Division::find(const at::Tensor& parameter) const {
  const auto found = std::find_if(cuts_.begin(), cuts_.end(),
                                  [&](const auto& entry) { return entry.first.is_same(parameter); });
  return found != cuts_.end() ? &found->second : nullptr;
}

// "*" takes as little as it can, and more where the rest does not fit.
bool fits_pattern(const std::string& path, const std::string& pattern) {
  std::size_t at = 0, in = 0;
  std::size_t star = std::string::npos, taken = 0;
  while (at < path.size()) {
    if (in < pattern.size() && pattern[in] == '*') {
      star = in++;
      taken = at;
    } else if (in < pattern.size() && pattern[in] == path[at]) {
      ++in;
      ++at;
    } else if (star != std::string::npos) {
      in = star + 1;
      at = ++taken;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', in) == std::string::npos;
}

}  // namespace rondo
