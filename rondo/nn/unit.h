#pragma once

#include <torch/nn/pimpl.h>

#include <concepts>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "rondo/nn/activation_checkpoint.h"
#include "rondo/nn/unit_state.h"

namespace rondo {

// A module that strategies treat as a unit.
class UnitBase {
 public:
  virtual ~UnitBase() = default;
  virtual UnitState& unit_state() = 0;  // state that observers attach to
};

namespace unit_detail {

// Collects the tensors in forward's arguments and results: a tensor, an optional one, a vector, or a tuple or
// pair of these. Ignores everything else.
template <class Value>
void collect(Value&, std::vector<at::Tensor*>&) {}
inline void collect(at::Tensor& tensor, std::vector<at::Tensor*>& tensors) { tensors.push_back(&tensor); }
inline void collect(std::optional<at::Tensor>& tensor, std::vector<at::Tensor*>& tensors) {
  if (tensor) tensors.push_back(&*tensor);
}
inline void collect(std::vector<at::Tensor>& values, std::vector<at::Tensor*>& tensors) {
  for (at::Tensor& tensor : values) tensors.push_back(&tensor);
}
template <class... Values>
void collect(std::tuple<Values...>& values, std::vector<at::Tensor*>& tensors) {
  std::apply([&](auto&... value) { (collect(value, tensors), ...); }, values);
}
template <class First, class Second>
void collect(std::pair<First, Second>& values, std::vector<at::Tensor*>& tensors) {
  collect(values.first, tensors);
  collect(values.second, tensors);
}

template <class Values>
std::vector<at::Tensor*> tensors_in(Values& values) {
  std::vector<at::Tensor*> tensors;
  collect(values, tensors);
  return tensors;
}

// Runs `forward` so that it keeps only its inputs for backward. Holds `alive` until then.
template <class Forward, class... Arguments>
auto run_checkpointed(UnitState& state, Forward forward, std::tuple<Arguments...> arguments,
                      std::shared_ptr<void> alive) {
  std::vector<at::Tensor> inputs;
  for (const at::Tensor* tensor : tensors_in(arguments)) inputs.push_back(*tensor);
  const auto put = [](std::tuple<Arguments...>& into, const std::vector<at::Tensor>& tensors) {
    const std::vector<at::Tensor*> places = tensors_in(into);
    for (std::size_t i = 0; i < places.size(); ++i) *places[i] = tensors[i];
  };
  std::tuple<Arguments...> shape = arguments;  // everything except the tensors, which the call keeps
  put(shape, std::vector<at::Tensor>(inputs.size()));
  CheckpointedCall call(std::move(inputs), &state);
  put(arguments, call.inputs());
  auto result = std::apply(forward, arguments);
  call.finish(tensors_in(result),
              [forward, shape, put, alive = std::move(alive)](const std::vector<at::Tensor>& again) {
                std::tuple<Arguments...> repeated = shape;
                put(repeated, again);
                auto results = std::apply(forward, repeated);
                std::vector<at::Tensor> outputs;
                for (const at::Tensor* tensor : tensors_in(results)) outputs.push_back(*tensor);
                return outputs;
              });
  return result;
}

// Runs `forward` as one call of the unit. `arguments` are copies (tensors are handles), so that the caller's
// tensors keep their place in the graph.
template <class Forward, class... Arguments>
auto run(UnitState& state, Forward forward, std::tuple<Arguments...> arguments) {
  const bool checkpointed = state.checkpointed() && at::GradMode::is_enabled();
  if (!state.observed() && !checkpointed) return std::apply(forward, arguments);
  UnitCall call(state);
  call.mark_inputs(tensors_in(arguments));
  auto result = checkpointed ? run_checkpointed(state, forward, std::move(arguments), state.keep_alive())
                             : std::apply(forward, arguments);
  call.mark_outputs(tensors_in(result));
  return result;
}

template <class Module>
struct Contained {
  using type = Module;
};
template <class Module>
requires requires { typename Module::ContainedType; }
struct Contained<Module> {
  using type = typename Module::ContainedType;
};

// The type of Impl::forward, or void if it is overloaded or a template.
template <class Impl>
struct ForwardOf {
  using type = void;
};
template <class Impl>
requires requires { &Impl::forward; }
struct ForwardOf<Impl> {
  using type = decltype(&Impl::forward);
};

// A clone of the module inside a unit, from which another unit is constructed.
template <class Impl>
struct CloneOf {
  const Impl& module;
  bool checkpointed;
};

template <class Unit, class Impl>
std::shared_ptr<torch::nn::Module> clone_of(std::shared_ptr<torch::nn::Module> inside,
                                            const UnitState& state) {
  if constexpr (std::is_copy_constructible_v<Impl>) {
    return std::make_shared<Unit>(CloneOf<Impl>{dynamic_cast<const Impl&>(*inside), state.checkpointed()});
  } else {
    return inside;
  }
}

// The common part of both forms of a unit's module `Self`, without forward.
template <class Impl, class Self>
class UnitOf : public Impl, public UnitBase {
 public:
  using Impl::Impl;
  // Used by clone().
  explicit UnitOf(const CloneOf<Impl>& original) requires std::is_copy_constructible_v<Impl>
      : Impl(original.module) {
    state_.set_checkpointed(original.checkpointed);
  }
  UnitState& unit_state() override { return state_; }  // state that observers attach to
  // Returns a copy of the module that is a unit too, on `device` if given; without observers.
  std::shared_ptr<torch::nn::Module> clone(const std::optional<c10::Device>& device = {}) const override {
    return clone_of<Self, Impl>(Impl::clone(device), state_);
  }

 protected:
  UnitState state_{*this};
};

}  // namespace unit_detail

// A module of type Impl that is a unit. It derives from Impl, so names, casts and copies of its members work
// as before; its forward notifies the unit's observers.
template <class Impl, class Forward = typename unit_detail::ForwardOf<Impl>::type>
class UnitImpl : public unit_detail::UnitOf<Impl, UnitImpl<Impl, Forward>> {
  using UnitOf = unit_detail::UnitOf<Impl, UnitImpl>;

 public:
  using UnitOf::UnitOf;

  template <class... Arguments>
  // Calls Impl::forward and notifies the unit's observers.
  auto forward(Arguments&&... arguments) {
    return unit_detail::run(
        this->state_, [this](auto&... values) { return Impl::forward(values...); },
        std::tuple<std::decay_t<Arguments>...>(std::forward<Arguments>(arguments)...));
  }
};

// A unit with the exact signature of forward, which Sequential and AnyModule need.
template <class Impl, class Result, class Owner, class... Parameters>
class UnitImpl<Impl, Result (Owner::*)(Parameters...)>
    : public unit_detail::UnitOf<Impl, UnitImpl<Impl, Result (Owner::*)(Parameters...)>> {
  using UnitOf = unit_detail::UnitOf<Impl, UnitImpl>;

 public:
  using UnitOf::UnitOf;

  // Calls Impl::forward and notifies the unit's observers.
  Result forward(Parameters... arguments) {
    return unit_detail::run(
        this->state_, [this](auto&... values) -> Result { return Impl::forward(values...); },
        std::tuple<std::decay_t<Parameters>...>(std::forward<Parameters>(arguments)...));
  }
};

// A module that is a unit: `rondo::Unit<Block> block{nullptr};` instead of `Block block{nullptr};`, where
// Block is a module holder (TORCH_MODULE) or a module class. Construction, registration and calls do not
// change.
//
// Call the unit itself (block(x), or forward of the unit's type). forward is not virtual in libtorch, so the
// unit does not observe a call through the type of the inner module, such as
// modules->at<BlockImpl>(i).forward(x). Use at<rondo::Unit<Block>::Impl>(i).
//
// forward may take and return tensors, optional tensors, vectors of tensors, and tuples or pairs of these;
// the backward pass ignores tensors inside other types. A unit may contain units, and may be called several
// times in a pass. clone() returns a unit with tensors of its own, as the inner module does
// (torch::nn::Cloneable), without observers.
template <class Module>
class Unit : public torch::nn::ModuleHolder<UnitImpl<typename unit_detail::Contained<Module>::type>> {
 public:
  using Impl = UnitImpl<typename unit_detail::Contained<Module>::type>;  // the module's type
  using torch::nn::ModuleHolder<Impl>::ModuleHolder;
};

}  // namespace rondo
