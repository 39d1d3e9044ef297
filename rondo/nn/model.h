#pragma once

#include <torch/nn/module.h>

#include <concepts>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace torch::jit {
struct Module;
}

namespace rondo {

using Tensors = std::vector<at::Tensor>;  // inputs, outputs or targets, in order

// A function that calls a model: tensors in, tensors out. Constructed from any function of one to six
// tensors, or of `const Tensors&`, that returns a tensor, Tensors or a tuple of tensors. The function is
// copied.
class ForwardFunction {
 public:
  ForwardFunction() = default;
  // Takes any function as described above.
  template <class Function>
  requires(!std::same_as<std::remove_cvref_t<Function>, ForwardFunction>)
      ForwardFunction(Function function)  // NOLINT(google-explicit-constructor)
      : run_(adapt(std::move(function))) {}

  // Throws UsageError for a wrong number of inputs, and if the function returns no tensor.
  Tensors run(const Tensors& inputs) const;
  // Calls a model with one input and one output. Throws UsageError for any other.
  at::Tensor operator()(const at::Tensor& input) const;
  explicit operator bool() const { return static_cast<bool>(run_); }  // whether a function is set

 private:
  using Run = std::function<Tensors(const Tensors&)>;
  static constexpr std::size_t kMostInputs = 6;

  template <std::size_t>
  using Input = const at::Tensor&;
  template <class Function, std::size_t... I>
  static constexpr bool takes(std::index_sequence<I...>) {
    return std::is_invocable_v<Function&, Input<I>...>;
  }
  // Returns the number of tensors that the function takes: the smallest valid number, or 0 if there is none.
  template <class Function, std::size_t Count = 1>
  static constexpr std::size_t inputs_of() {
    if constexpr (takes<Function>(std::make_index_sequence<Count>())) {
      return Count;
    } else if constexpr (Count < kMostInputs) {
      return inputs_of<Function, Count + 1>();
    } else {
      return 0;
    }
  }
  static Tensors outputs_of(at::Tensor output) { return {std::move(output)}; }
  static Tensors outputs_of(Tensors outputs) { return outputs; }
  template <class... Outputs>
  requires(std::convertible_to<const Outputs&, at::Tensor>&&...) static Tensors
      outputs_of(const std::tuple<Outputs...>& outputs) {
    return std::apply([](const auto&... each) { return Tensors{each...}; }, outputs);
  }
  template <class Function, class... Inputs>
  static Tensors call(Function& function, const Inputs&... inputs) {
    constexpr bool gives_tensors = requires { outputs_of(function(inputs...)); };
    // A function that takes no valid inputs was already rejected.
    static_assert(gives_tensors || sizeof...(Inputs) == 0,
                  "a model's forward returns a tensor, a vector or a tuple of tensors");
    // Avoids the compiler's own errors about the call, which would hide the message above.
    if constexpr (gives_tensors) {
      return outputs_of(function(inputs...));
    } else {
      return {};
    }
  }
  static void check_inputs(std::size_t given, std::size_t taken);

  // An unconstrained function template accepts every type; NoTensor excludes it.
  struct NoTensor {};
  template <class Function>
  static constexpr bool takes_all_at_once =
      std::is_invocable_v<Function&, const Tensors&> && !std::is_invocable_v<Function&, const NoTensor&>;

  template <class Function>
  static Run adapt(Function function) {
    if constexpr (takes_all_at_once<Function>) {
      return [function](const Tensors& inputs) mutable { return call(function, inputs); };
    } else {
      constexpr std::size_t count = inputs_of<Function>();
      static_assert(count > 0, "a model's forward takes one to six tensors, or const Tensors&");
      return [function](const Tensors& inputs) mutable {
        check_inputs(inputs.size(), count);
        return [&]<std::size_t... I>(std::index_sequence<I...>) { return call(function, inputs[I]...); }
        (std::make_index_sequence<count>());
      };
    }
  }

  Run run_;
};

// A module and the function that calls it.
struct Model {
  std::string name = {};       // name given to make_model, for example "gpt-25m"
  nlohmann::json config = {};  // complete: make_model(name, config) returns the same architecture
  std::shared_ptr<torch::nn::Module> module = {};  // owner of the trained parameters
  ForwardFunction forward = {};                    // calls the module
};

// Creates the same model at each call: the same names, shapes and dtypes of parameters and buffers. Values
// may differ.
using ModelFactory = std::function<Model()>;

namespace detail {
// Throws UsageError for null.
void require_module(const torch::nn::Module* module);
}  // namespace detail

// Wraps any module with a forward of one to six tensors, given by its shared pointer; its name is that of its
// class. Throws UsageError for null.
template <std::derived_from<torch::nn::Module> Module>
Model as_model(std::shared_ptr<Module> module) {
  detail::require_module(module.get());
  Model model;
  model.name = module->name();
  model.config = nlohmann::json::object();
  // The module owns this function, so the function must not keep the module alive.
  model.forward = [raw = module.get()]<class... Inputs>(const Inputs&... inputs) requires requires(
      Module & callee, const Inputs&... given) {
    callee.forward(given...);
  }
  { return raw->forward(inputs...); };
  model.module = std::move(module);
  return model;
}

// Wraps a TorchScript module: its parameters and buffers under their names, its training mode, and its
// forward. It has no units.
Model as_model(const torch::jit::Module& module);

// Returns a factory of one existing model. The first call returns the model; a second call throws UsageError,
// because it needs a function that creates models.
ModelFactory only(Model model);

// Returns `count` models of the factory with the values of the first. Throws UsageError naming the first
// parameter or buffer whose name, shape or dtype differs in a later model.
std::vector<Model> make_replicas(const ModelFactory& factory, int count);

// Returns the next model of the factory. Throws UsageError if the factory is empty or returns a null module.
Model next_model(const ModelFactory& factory);

// A scope in which a module is in evaluation mode; its end restores the former mode.
class EvaluationMode {
 public:
  // The module must outlive the object.
  explicit EvaluationMode(torch::nn::Module& module) : module_(module), was_training_(module.is_training()) {
    module_.eval();
  }
  // Restores the former mode.
  ~EvaluationMode() { module_.train(was_training_); }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  torch::nn::Module& module_;
  bool was_training_;
};

// Mapping between a foreign file of pretrained weights and a model.
struct PretrainedNames {
  // Maps the name of a tensor in the file to the model's name.
  std::function<std::string(const std::string&)> in_model = [](const std::string& name) { return name; };
  // Returns whether a tensor, by its name in the file, is no weight and is skipped silently.
  std::function<bool(const std::string&)> is_ignored = [](const std::string&) { return false; };
  // Returns whether the file holds a weight, by the model's name, transposed.
  std::function<bool(const std::string&)> is_transposed = [](const std::string&) { return false; };
  // Parts of the model that may be absent from the file ("classifier."): either all tensors of a part are
  // there or none.
  std::vector<std::string> optional_parts = {};
  // Further names, after in_model, of tensors that the model shares: first the further name, then the
  // model's. If a file has both, they must be equal.
  std::vector<std::pair<std::string, std::string>> shared = {};
};

}  // namespace rondo
