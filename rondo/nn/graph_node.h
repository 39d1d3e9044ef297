#pragma once

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/edge.h>

#include <memory>
#include <type_traits>
#include <utility>

namespace rondo {

// Makes a node of the autograd graph. libtorch 2.13 holds nodes by intrusive_ptr, earlier ones by shared_ptr.
template <class Node, class Edge = torch::autograd::Edge, class... Arguments>
auto make_graph_node(Arguments&&... arguments) {
  using Base = typename decltype(Edge::function)::element_type;
  if constexpr (std::is_same_v<decltype(Edge::function), std::shared_ptr<Base>>) {
    return std::make_shared<Node>(std::forward<Arguments>(arguments)...);
  } else {
    return c10::make_intrusive<Node>(std::forward<Arguments>(arguments)...);
  }
}

}  // namespace rondo
