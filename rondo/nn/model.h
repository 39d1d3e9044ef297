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

// How a model is called: tensors in, tensors out. Made of any function of one to six tensors, or of
// `const Tensors&`, that returns a tensor, Tensors or a tuple of tensors. Functions that it is made of are
// copied.
class ForwardFunction {
 public:
  ForwardFunction() = default;
  // Takes any function as described above.
  template <class Function>
  requires(!std::same_as<std::remove_cvref_t<Function>, ForwardFunction>)
      ForwardFunction(Function function)  // NOLINT(google-explicit-constructor)
      : run_(adapt(std::move(function))) {}

  // Throws UsageError when there are more or fewer inputs than the function takes, and when it returns no
  // tensor.
  Tensors run(const Tensors& inputs) const;
  // Of a model with one input and one output; throws UsageError for another one.
  at::Tensor operator()(const at::Tensor& input) const;
  explicit operator bool() const { return static_cast<bool>(run_); }  // whether it was made of a function

 private:
  using Run = std::function<Tensors(const Tensors&)>;
  static constexpr std::size_t kMostInputs = 6;

  template <std::size_t>
  using Input = const at::Tensor&;
  template <class Function, std::size_t... I>
  static constexpr bool takes(std::index_sequence<I...>) {
    return std::is_invocable_v<Function&, Input<I>...>;
  }
  // How many tensors the function takes, the fewest where several numbers would do; 0 for none.
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
    // Without inputs it was refused already, for what it takes.
    static_assert(gives_tensors || sizeof...(Inputs) == 0,
                  "a model's forward returns a tensor, a vector or a tuple of tensors");
    // The compiler's own words about the call would only hide these.
    if constexpr (gives_tensors) {
      return outputs_of(function(inputs...));
    } else {
      return {};
    }
  }
  static void check_inputs(std::size_t given, std::size_t taken);

  // A function template without constraints takes Tensors as it takes everything; that says nothing.
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

// A module together with how to call it.
struct Model {
  std::string name = {};       // as given to make_model, for example "gpt-25m"
  nlohmann::json config = {};  // complete: make_model(name, config) gives the same architecture again
  std::shared_ptr<torch::nn::Module> module = {};  // whose parameters are trained
  ForwardFunction forward = {};                    // calls the module
};

// Makes the same model at each call: the same names, shapes and dtypes of parameters and buffers. Values may
// differ.
using ModelFactory = std::function<Model()>;

namespace detail {
// Throws UsageError for null.
void require_module(const torch::nn::Module* module);
}  // namespace detail

// Any module with a forward of one to six tensors (its shared pointer), known by its class's name. Throws
// UsageError for null.
template <std::derived_from<torch::nn::Module> Module>
Model as_model(std::shared_ptr<Module> module) {
  detail::require_module(module.get());
  Model model;
  model.name = module->name();
  model.config = nlohmann::json::object();
  // A member of the module, so the module does not keep itself alive.
  model.forward = [raw = module.get()]<class... Inputs>(const Inputs&... inputs) requires requires(
      Module & callee, const Inputs&... given) {
    callee.forward(given...);
  }
  { return raw->forward(inputs...); };
  model.module = std::move(module);
  return model;
}

// A TorchScript module: its parameters and buffers under their names, its training mode, and its forward.
// It has no units.
Model as_model(const torch::jit::Module& module);

// A factory of one model that exists: gives it at the first call, and throws UsageError at a second one,
// which needs a function that makes models.
ModelFactory only(Model model);

// `count` models of the factory with the values of the first. Throws UsageError naming the first parameter or
// buffer in which a later one differs in name, shape or dtype.
std::vector<Model> make_replicas(const ModelFactory& factory, int count);

// What the factory makes next. Throws UsageError where it makes nothing.
Model next_model(const ModelFactory& factory);

// Puts a module into evaluation mode for the life of this object, and back to the former mode.
class EvaluationMode {
 public:
  // The module must outlive the object.
  explicit EvaluationMode(torch::nn::Module& module) : module_(module), was_training_(module.is_training()) {
    module_.eval();
  }
  // Back to the former mode.
  ~EvaluationMode() { module_.train(was_training_); }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  torch::nn::Module& module_;
  bool was_training_;
};

// How a file of somebody else's weights relates to a model.
struct PretrainedNames {
  // The model's name of a tensor in the file.
  std::function<std::string(const std::string&)> in_model = [](const std::string& name) { return name; };
  // Tensors of the file, by their names there, that are no weights: passed over without a word.
  std::function<bool(const std::string&)> is_ignored = [](const std::string&) { return false; };
  // Weights, by the model's names, that the file holds transposed.
  std::function<bool(const std::string&)> is_transposed = [](const std::string&) { return false; };
  // Parts of the model that the file may lack ("classifier."): all tensors of a part are there, or none of
  // them.
  std::vector<std::string> optional_parts = {};
  // Further names, after in_model, of tensors that the model shares: first the further name, then the
  // model's. Where a file has both they must be equal.
  std::vector<std::pair<std::string, std::string>> shared = {};
};

}  // namespace rondo
