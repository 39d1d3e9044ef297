#include "rondo/nn/wrap.h"

#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>

#include "rondo/base/error.h"
#include "rondo/nn/unit.h"

namespace rondo {
namespace {

constexpr const char* kNoRule = "wrap_units: the rule is empty; give one, as wrap_all() or wrap_from(bytes)";

std::uint64_t parameter_bytes(const torch::nn::Module& module) {
  std::uint64_t bytes = 0;
  for (const at::Tensor& parameter : module.parameters()) bytes += parameter.nbytes();
  return bytes;
}

// Stands in a Sequential for the layer that it holds. What the layer has registered is registered here, so
// that names and everything that walks over modules find it where it was.
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
  // The layer itself is no registered child.
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

// `path` is the module's with a dot behind it.
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

}  // namespace rondo
