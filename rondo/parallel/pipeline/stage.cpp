#include "rondo/parallel/pipeline/stage.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/types.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace rondo {
namespace {

using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::Node;
using torch::autograd::variable_list;

// A hook that keeps the gradients that arrive at a node when the node first runs.
struct KeepArrived final : torch::autograd::FunctionPreHook {
  explicit KeepArrived(std::shared_ptr<std::vector<at::Tensor>> target) : arrived(std::move(target)) {}
  variable_list operator()(const variable_list& gradients) override {
    if (!std::exchange(has_run, true)) *arrived = gradients;
    return gradients;
  }
  std::shared_ptr<std::vector<at::Tensor>> arrived;
  bool has_run = false;
};

// A hook that frees the variables that a node saved for backward after the node has run.
struct ReleaseAfter final : torch::autograd::FunctionPostHook {
  explicit ReleaseAfter(Node* n) : node(n) {}
  variable_list operator()(const variable_list& gradients, const variable_list&) override {
    node->release_variables();
    return gradients;
  }
  Node* node;  // owner of this object
};

// The leaves reachable from a node.
struct Reach {
  bool input = false;
  std::vector<std::size_t> parameters;  // reachable without passing a node that reaches an input
};

Edge edge_of(const at::Tensor& tensor) { return torch::autograd::impl::gradient_edge(tensor); }

// Returns the nodes reachable from `roots`, each after all its successors.
std::vector<Node*> in_post_order(const edge_list& roots) {
  std::vector<Node*> order;
  std::unordered_map<Node*, bool> seen;
  struct Visit {
    Node* node;
    std::size_t next = 0;
  };
  std::vector<Visit> path;
  const auto enter = [&](Node* node) {
    if (node != nullptr && seen.emplace(node, true).second) path.push_back({node});
  };
  for (const Edge& root : roots) {
    enter(root.function.get());
    while (!path.empty()) {
      Visit& visit = path.back();
      const edge_list& next = visit.node->next_edges();
      if (visit.next == next.size()) {
        order.push_back(visit.node);
        path.pop_back();
      } else {
        enter(next[visit.next++].function.get());
      }
    }
  }
  return order;
}

}  // namespace

SplitBackward::SplitBackward(Tensors outputs, Tensors inputs, Tensors parameters)
    : outputs_(std::move(outputs)), inputs_(std::move(inputs)), parameters_(std::move(parameters)) {}

void SplitBackward::run(const Tensors& leaves, const Tensors& output_gradients, bool keep_graph) const {
  variable_list root_gradients;
  edge_list roots, wanted;
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    if (!outputs_[i].requires_grad()) continue;
    roots.push_back(edge_of(outputs_[i]));
    root_gradients.push_back(i < output_gradients.size() && output_gradients[i].defined()
                                 ? output_gradients[i]
                                 : at::ones_like(outputs_[i]));
  }
  for (const at::Tensor& leaf : leaves) {
    if (leaf.requires_grad()) wanted.push_back(edge_of(leaf));
  }
  if (roots.empty() || wanted.empty()) return;
  torch::autograd::Engine::get_default_engine().execute(roots, root_gradients, keep_graph,
                                                        /*create_graph=*/false, /*accumulate_grad=*/true,
                                                        wanted);
}

Tensors SplitBackward::take_input_gradients() const {
  Tensors gradients;
  for (const at::Tensor& input : inputs_)
    gradients.push_back(input.requires_grad() ? std::exchange(input.mutable_grad(), {}) : at::Tensor());
  return gradients;
}

Tensors SplitBackward::gradients(const Tensors& output_gradients) {
  Tensors leaves = inputs_;
  leaves.insert(leaves.end(), parameters_.begin(), parameters_.end());
  run(leaves, output_gradients, /*keep_graph=*/false);
  outputs_.clear();
  return take_input_gradients();
}

Tensors SplitBackward::input_gradients(const Tensors& output_gradients) {
  is_cut_ = cut_graph();
  if (!is_cut_) output_gradients_ = output_gradients;
  run(inputs_, output_gradients, /*keep_graph=*/true);
  if (is_cut_) outputs_.clear();
  return take_input_gradients();
}

void SplitBackward::add_parameter_gradients() {
  if (!is_cut_) run(parameters_, output_gradients_, /*keep_graph=*/false);
  for (Cut& cut : cuts_) {
    edge_list roots, wanted;
    variable_list arrived;
    for (std::size_t i = 0; i < cut.arrived->size(); ++i) {
      if (!(*cut.arrived)[i].defined()) continue;
      roots.emplace_back(cut.node.function, static_cast<std::uint32_t>(i));
      arrived.push_back((*cut.arrived)[i]);
    }
    cut.arrived->clear();
    if (roots.empty()) continue;
    for (const std::size_t parameter : cut.parameters) wanted.push_back(edge_of(parameters_[parameter]));
    torch::autograd::Engine::get_default_engine().execute(roots, arrived, /*keep_graph=*/false,
                                                          /*create_graph=*/false, /*accumulate_grad=*/true,
                                                          wanted);
  }
  outputs_.clear();
  cuts_.clear();
  output_gradients_.clear();
}

bool SplitBackward::cut_graph() {
  edge_list roots;
  for (const at::Tensor& output : outputs_) {
    if (output.requires_grad()) roots.push_back(edge_of(output));
  }
  edge_list leaves;  // keeps nodes alive that are not in the graph
  const auto leaf = [&](const at::Tensor& tensor) {
    return leaves.emplace_back(edge_of(tensor)).function.get();
  };
  std::unordered_map<const Node*, Reach> reach;
  for (const at::Tensor& input : inputs_) {
    if (input.requires_grad()) reach[leaf(input)].input = true;
  }
  std::unordered_map<const Node*, std::size_t> parameter_of;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].requires_grad()) parameter_of.emplace(leaf(parameters_[i]), i);
  }
  std::vector<int> uses(parameters_.size(), 0);
  std::vector<Node*> for_inputs;  // nodes not needed by the second part
  for (Node* const node : in_post_order(roots)) {
    Reach& own = reach[node];
    if (const auto found = parameter_of.find(node); found != parameter_of.end())
      own.parameters.push_back(found->second);
    for (const Edge& edge : node->next_edges()) {
      if (edge.function && reach.at(edge.function.get()).input) own.input = true;
    }
    std::vector<std::size_t> below = own.parameters;
    for (const Edge& edge : node->next_edges()) {
      if (!edge.function) continue;
      const Reach& next = reach.at(edge.function.get());
      if (next.input) continue;
      for (const std::size_t parameter : next.parameters) {
        if (std::find(below.begin(), below.end(), parameter) == below.end()) below.push_back(parameter);
      }
    }
    if (own.input && !below.empty()) {
      for (const std::size_t parameter : below) ++uses[parameter];
      cuts_.push_back({std::make_shared<std::vector<at::Tensor>>(), Edge(node->getptr(), 0), below});
    }
    if (own.input && below.empty()) for_inputs.push_back(node);
    reach[node].parameters = std::move(below);
  }
  const bool all_through_inputs = std::all_of(
      roots.begin(), roots.end(), [&](const Edge& root) { return reach.at(root.function.get()).input; });
  const bool once = std::all_of(uses.begin(), uses.end(), [](int count) { return count <= 1; });
  if (!all_through_inputs || !once) {
    cuts_.clear();
    return false;
  }
  for (const Cut& cut : cuts_) cut.node.function->add_pre_hook(std::make_unique<KeepArrived>(cut.arrived));
  for (Node* const node : for_inputs) node->add_post_hook(std::make_unique<ReleaseAfter>(node));
  return true;
}

Stage::Stage(std::vector<ModelLayer> layers, bool splits) : layers_(std::move(layers)), splits_(splits) {
  std::unordered_set<const void*> seen;
  for (const ModelLayer& layer : layers_) {
    for (const at::Tensor& tensor : layer.tensors) {
      if (!seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
      tensors_.push_back(tensor);
      if (tensor.requires_grad()) parameters_.push_back(tensor);
    }
  }
}

void Stage::clear_gradients() {
  for (const at::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
}

Tensors Stage::forward(int micro_batch, const Tensors& inputs) {
  Tensors values = inputs;
  for (const ModelLayer& layer : layers_) values = layer.forward.run(values);
  if (at::GradMode::is_enabled()) kept_[micro_batch] = {inputs, values, nullptr};
  return values;
}

void Stage::replace_outputs(int micro_batch, Tensors outputs) {
  kept_.at(micro_batch).outputs = std::move(outputs);
}

Tensors Stage::gradients_for(const Kept& kept, const Tensors& given) const {
  Tensors gradients(kept.outputs.size());
  std::size_t next = 0;
  for (std::size_t i = 0; i < kept.outputs.size() && next < given.size(); ++i) {
    if (kept.outputs[i].requires_grad()) gradients[i] = given[next++];
  }
  return gradients;
}

Tensors Stage::of_inputs(const Tensors& inputs, const Tensors& gradients) const {
  Tensors result;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].requires_grad())
      result.push_back(gradients[i].defined() ? gradients[i] : at::zeros_like(inputs[i]));
  }
  return result;
}

Tensors Stage::backward(int micro_batch, const Tensors& output_gradients) {
  Kept kept = std::move(kept_.at(micro_batch));
  kept_.erase(micro_batch);
  const Tensors given = gradients_for(kept, output_gradients);
  SplitBackward both(std::move(kept.outputs), kept.inputs, parameters_);
  return of_inputs(kept.inputs, both.gradients(given));
}

Tensors Stage::backward_input(int micro_batch, const Tensors& output_gradients) {
  // A stage that recomputes its activations can do so only once.
  if (!splits_) return backward(micro_batch, output_gradients);
  Kept& kept = kept_.at(micro_batch);
  const Tensors given = gradients_for(kept, output_gradients);
  kept.backward = std::make_unique<SplitBackward>(std::move(kept.outputs), kept.inputs, parameters_);
  return of_inputs(kept.inputs, kept.backward->input_gradients(given));
}

void Stage::backward_weight(int micro_batch) {
  if (!splits_) return;
  const std::unique_ptr<SplitBackward> backward = std::move(kept_.at(micro_batch).backward);
  kept_.erase(micro_batch);
  backward->add_parameter_gradients();
}

}  // namespace rondo
