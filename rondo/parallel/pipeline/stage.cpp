#include "rondo/parallel/pipeline/stage.h"

#include <torch/types.h>

#include <unordered_set>

namespace rondo {

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
  // What recomputes its activations does so once.
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
