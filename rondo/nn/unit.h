#pragma once

#include <torch/nn/pimpl.h>

#include <concepts>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "rondo/nn/unit_state.h"

namespace rondo {

// What strategies find in a model: any module that derives from this is a unit.
class UnitBase {
 public:
  virtual ~UnitBase() = default;
  virtual UnitState& unit_state() = 0;
};

namespace unit_detail {

// Collects the tensors in what forward takes and gives: a tensor, an optional one, a vector, or a tuple or
// pair of such. Everything else passes through unseen.
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

// Runs `module`'s forward as one call of the unit. `arguments` are copies (tensors are handles), so that the
// caller's keep their place in the graph.
template <class Forward, class... Arguments>
auto run(UnitState& state, Forward forward, std::tuple<Arguments...> arguments) {
  if (!state.observed()) return std::apply(forward, arguments);
  UnitCall call(state);
  std::vector<at::Tensor*> tensors;
  collect(arguments, tensors);
  call.mark_inputs(tensors);
  auto result = std::apply(forward, arguments);
  tensors.clear();
  collect(result, tensors);
  call.mark_outputs(tensors);
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

// The type of Impl::forward, or void where it is overloaded or a template.
template <class Impl>
struct ForwardOf {
  using type = void;
};
template <class Impl>
requires requires { &Impl::forward; }
struct ForwardOf<Impl> {
  using type = decltype(&Impl::forward);
};

}  // namespace unit_detail

// A module of type Impl that is a unit: derived from it, so names, casts and copies of its members work as
// before, with a forward that tells the unit's observers.
template <class Impl, class Forward = typename unit_detail::ForwardOf<Impl>::type>
class UnitImpl : public Impl, public UnitBase {
 public:
  using Impl::Impl;
  UnitState& unit_state() override { return state_; }

  template <class... Arguments>
  auto forward(Arguments&&... arguments) {
    return unit_detail::run(
        state_, [this](auto&... values) { return Impl::forward(values...); },
        std::tuple<std::decay_t<Arguments>...>(std::forward<Arguments>(arguments)...));
  }

 private:
  UnitState state_{*this};
};

// The same with the exact signature, which Sequential and AnyModule need.
template <class Impl, class Result, class Owner, class... Parameters>
class UnitImpl<Impl, Result (Owner::*)(Parameters...)> : public Impl, public UnitBase {
 public:
  using Impl::Impl;
  UnitState& unit_state() override { return state_; }

  Result forward(Parameters... arguments) {
    return unit_detail::run(
        state_, [this](auto&... values) -> Result { return Impl::forward(values...); },
        std::tuple<std::decay_t<Parameters>...>(std::forward<Parameters>(arguments)...));
  }

 private:
  UnitState state_{*this};
};

// A module that is a unit: `rondo::Unit<Block> block{nullptr};` in place of `Block block{nullptr};`, where
// Block is a module holder (TORCH_MODULE) or a module class. Construction, registration and calls stay as
// they are.
//
// Call the unit itself (block(x), or forward of the unit's type): forward is not virtual in libtorch, so a
// call through the type of the module inside, such as modules->at<BlockImpl>(i).forward(x), is not seen;
// at<rondo::Unit<Block>::Impl>(i) is the way.
//
// forward may take and give tensors, optional tensors, vectors of tensors and tuples or pairs of these;
// tensors inside other types are not seen by the backward pass. A unit may contain units, and may be called
// several times in a pass. clone() gives the module without its unit.
template <class Module>
class Unit : public torch::nn::ModuleHolder<UnitImpl<typename unit_detail::Contained<Module>::type>> {
 public:
  using Impl = UnitImpl<typename unit_detail::Contained<Module>::type>;
  using torch::nn::ModuleHolder<Impl>::ModuleHolder;
};

}  // namespace rondo
