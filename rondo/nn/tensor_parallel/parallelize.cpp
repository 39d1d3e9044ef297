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
#include "rondo/nn/linear.h"
#include "rondo/nn/parallel_communication.h"
#include "rondo/nn/sample_dropout.h"

namespace rondo {
namespace {

constexpr std::int64_t kSequence = 1;  // the dimension of [samples, length, width]

[[noreturn]] void refuse_style(const std::string& path, const char* layer, ParallelStyle style,
                               const char* styles) {
  throw UsageError(
      str("'", path, "' is a ", layer, ", which has no style ", to_text(style), "; it has ", styles));
}

// Returns the input that every rank needs for a layer with divided outputs.
at::Tensor whole_input(const at::Tensor& input, bool sequence, const Group& group) {
  return sequence ? all_gather_parts(input, kSequence, group) : copy_to_ranks(input, group);
}

at::Tensor summed_output(const at::Tensor& output, bool sequence, const Group& group) {
  return sequence ? reduce_scatter_parts(output, kSequence, group) : sum_over_ranks(output, group);
}

}  // namespace

void ParallelLinearImpl::divide(ParallelStyle style, Division& division, const std::string& path) {
  switch (style) {
    case ParallelStyle::column:
    case ParallelStyle::gathered_column:
    case ParallelStyle::vocabulary:
      if (style == ParallelStyle::gathered_column && blocks_ > 1)
        throw UsageError(
            str("'", path, "' has outputs in ", blocks_, " blocks, which are not gathered in order"));
      division.cut(weight, 0, path, blocks_);
      if (bias.defined()) division.cut(bias, 0, path, blocks_);
      if (style == ParallelStyle::vocabulary) division.divide_outputs();
      break;
    case ParallelStyle::row:
      division.cut(weight, 1, path);
      break;
    default:
      refuse_style(path, "linear layer", style, "column, gathered_column, vocabulary and row");
  }
  style_ = style;
  sequence_ = division.sequence();
  group_ = division.group();
}

std::shared_ptr<torch::nn::Module> ParallelLinearImpl::clone(const std::optional<c10::Device>& device) const {
  return clone_derived<torch::nn::LinearImpl>(*this, device);
}

at::Tensor ParallelLinearImpl::forward(const at::Tensor& input) {
  if (!style_) return LinearImpl::forward(input);
  if (*style_ == ParallelStyle::row) {
    // Adds the bias once, not on every rank.
    at::Tensor sum = summed_output(at::linear(input, weight), sequence_, group_);
    if (!bias.defined()) return sum;
    return sum + (sequence_ ? copy_to_ranks(bias, group_) : bias);
  }
  const at::Tensor output = at::linear(whole_input(input, sequence_, group_), weight, bias);
  return *style_ == ParallelStyle::gathered_column ? gather_from_ranks(output, output.dim() - 1, group_)
                                                   : output;
}

void ParallelEmbeddingImpl::divide(ParallelStyle style, Division& division, const std::string& path) {
  if (style != ParallelStyle::vocabulary && style != ParallelStyle::sequence)
    refuse_style(path, "embedding", style, "vocabulary and sequence");
  if (options.max_norm() || options.scale_grad_by_freq())
    throw UsageError(str("'", path, "' has max_norm or scale_grad_by_freq, with which it cannot be divided"));
  if (style == ParallelStyle::vocabulary) {
    division.cut(weight, 0, path);
    by_tokens_ = has_peers(division.group());
    first_token_ = division.group().rank() * weight.size(0);
  }
  sequence_ = division.sequence();
  group_ = division.group();
}

std::shared_ptr<torch::nn::Module> ParallelEmbeddingImpl::clone(
    const std::optional<c10::Device>& device) const {
  return clone_derived<torch::nn::EmbeddingImpl>(*this, device);
}

at::Tensor ParallelEmbeddingImpl::forward(const at::Tensor& tokens) {
  if (!by_tokens_) return EmbeddingImpl::forward(tokens);
  const at::Tensor own = tokens - first_token_;
  const at::Tensor others = own.lt(0).logical_or(own.ge(weight.size(0)));
  std::int64_t padding = options.padding_idx().value_or(-1) - first_token_;
  if (!options.padding_idx() || padding < 0 || padding >= weight.size(0)) padding = -1;
  const at::Tensor rows = at::embedding(weight, own.masked_fill(others, 0), padding,
                                        /*scale_grad_by_freq=*/false, options.sparse());
  return summed_output(rows.masked_fill(others.unsqueeze(-1), 0), sequence_, group_);
}

at::Tensor ParallelEmbeddingImpl::first_rows(std::int64_t length) {
  const at::Tensor rows = weight.narrow(0, 0, length);
  return sequence_ ? own_part(rows, 0, group_) : rows;
}

at::Tensor ParallelEmbeddingImpl::logits(const at::Tensor& input, const at::Tensor& bias) {
  return at::linear(whole_input(input, sequence_, group_), weight, bias);
}

void ParallelLayerNormImpl::divide(ParallelStyle style, Division& division, const std::string& path) {
  if (style != ParallelStyle::sequence) refuse_style(path, "layer norm", style, "sequence");
  if (division.sequence()) group_ = division.group();
}

std::shared_ptr<torch::nn::Module> ParallelLayerNormImpl::clone(
    const std::optional<c10::Device>& device) const {
  return clone_derived<torch::nn::LayerNormImpl>(*this, device);
}

at::Tensor ParallelLayerNormImpl::forward(const at::Tensor& input) {
  if (!has_peers(group_) || !weight.defined()) return LayerNormImpl::forward(input);
  const at::IntArrayRef shape = options.normalized_shape();
  if (!bias.defined()) return at::layer_norm(input, shape, copy_to_ranks(weight, group_), {}, options.eps());
  // Communicates both gradients in one message.
  const at::Tensor both = copy_to_ranks(at::stack({weight, bias}), group_);
  return at::layer_norm(input, shape, both[0], both[1], options.eps());
}

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

// Replaces a child of a Sequential by its type that can be divided. Returns false if the child is not a
// `Plain`.
template <class Impl, class Plain>
bool exchange(torch::nn::AnyModule& slot, const Module& layer, std::shared_ptr<Module>& exchanged) {
  const auto* plain = dynamic_cast<const Plain*>(&layer);
  if (plain == nullptr) return false;
  auto parallel = std::make_shared<Impl>(*plain);
  slot = torch::nn::AnyModule(parallel);
  exchanged = std::move(parallel);
  return true;
}

// Applies the rules to a model, module by module.
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

  // `above` is the rule that divided an enclosing layer; it does not apply to the layers inside.
  void visit(Module& module, const std::string& path, const ParallelRules::Rule* above) {
    const auto* dropout = dynamic_cast<const torch::nn::DropoutImpl*>(&module);
    if (dropout != nullptr && dropout->options.p() > 0 && has_peers(division_.group())) {
      throw UsageError(str("'", path,
                           "' is a torch::nn::Dropout, which draws different values on every rank of a ",
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

  // Cuts a parameter that no layer divided along its first or last dimension, by rules that matched no layer.
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
  throw UsageError(str(what, ": '", text, "' is not a parallel style; expected one of ", join(known, ", ")));
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
    // Copies the part, so that the memory of the whole parameter is released.
    parameter.set_data(rondo::cut(parameter.detach(), address).clone(at::MemoryFormat::Contiguous));
    cuts_.emplace_back(parameter, std::move(address));
  }
}

const Shard* Division::find(const at::Tensor& parameter) const {
  const auto found = std::find_if(cuts_.begin(), cuts_.end(),
                                  [&](const auto& entry) { return entry.first.is_same(parameter); });
  return found != cuts_.end() ? &found->second : nullptr;
}

// Matches "*" with as little text as possible, and with more if the rest does not match.
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
