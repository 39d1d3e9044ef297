#include "rondo/strategy/state_dict.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <map>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

std::string describe(const ShardedTensor& part) {
  return str("[", join(part.global_sizes, ", "), "] with elements [", part.offset, ", ",
             part.offset + part.local.numel(), ") here");
}

// What differs between the state that the model has and the one it is given, one phrase each.
std::vector<std::string> differences(const std::vector<ShardedTensor>& expected,
                                     const std::map<std::string, const ShardedTensor*>& given) {
  std::vector<std::string> wrong;
  for (const ShardedTensor& tensor : expected) {
    const auto found = given.find(tensor.name);
    if (found == given.end()) {
      wrong.push_back(str("'", tensor.name, "' is missing"));
      continue;
    }
    const ShardedTensor& other = *found->second;
    const bool same = other.global_sizes == tensor.global_sizes && other.offset == tensor.offset &&
                      other.local.numel() == tensor.local.numel();
    if (!same)
      wrong.push_back(str("'", tensor.name, "' is ", describe(other), " and not ", describe(tensor)));
  }
  for (const auto& [name, tensor] : given) {
    bool known = false;
    for (const ShardedTensor& other : expected) known = known || other.name == name;
    if (!known) wrong.push_back(str("the model has no '", name, "'"));
  }
  return wrong;
}

std::map<std::string, const ShardedTensor*> by_name(const std::vector<ShardedTensor>& state) {
  std::map<std::string, const ShardedTensor*> result;
  for (const ShardedTensor& tensor : state) result[tensor.name] = &tensor;
  return result;
}

void require_fit(const std::vector<ShardedTensor>& expected, const std::vector<ShardedTensor>& state) {
  const std::vector<std::string> wrong = differences(expected, by_name(state));
  if (!wrong.empty()) throw UsageError(str("the state dict does not fit the model: ", join(wrong, "; ")));
}

ShardedTensor whole(const std::string& name, const at::Tensor& tensor) {
  return {name, tensor, tensor.sizes().vec(), 0};
}

std::vector<ModelTensor> optimized_parameters(PreparedModel& model) {
  return tensors_of(model.module()).parameters;
}

}  // namespace

std::vector<ShardedTensor> sharded_state_dict(PreparedModel& model) {
  model.parts().settle();
  std::vector<ShardedTensor> state;
  for (const ModelTensor& parameter : optimized_parameters(model)) {
    state.push_back({parameter.name, parameter.tensor.detach(), model.parts().whole_sizes(parameter.name),
                     model.parts().part_offset(parameter.name)});
  }
  for (const ModelTensor& buffer : model.parts().buffers())
    state.push_back(whole(buffer.name, buffer.tensor));
  return state;
}

std::vector<ModelTensor> full_state_dict(PreparedModel& model) {
  model.parts().settle();
  std::vector<ModelTensor> state;
  for (const ModelTensor& parameter : optimized_parameters(model)) {
    state.push_back({parameter.name, model.parts().assemble(parameter.name, parameter.tensor).detach()});
  }
  for (const ModelTensor& buffer : model.parts().buffers()) state.push_back(buffer);
  return state;
}

void load_full_state_dict(PreparedModel& model, const std::vector<ModelTensor>& state) {
  std::vector<ShardedTensor> expected;
  for (const ShardedTensor& tensor : sharded_state_dict(model)) {
    // Shapes only; whatever is here of it.
    expected.push_back({tensor.name, at::zeros({}).expand(tensor.global_sizes), tensor.global_sizes, 0});
  }
  std::vector<ShardedTensor> given;
  for (const ModelTensor& tensor : state) given.push_back(whole(tensor.name, tensor.tensor));
  require_fit(expected, given);
  const auto values = by_name(given);
  model.make_whole();
  for (const ModelTensor& parameter : optimized_parameters(model)) {
    model.parts().set_parameter(parameter.name, values.at(parameter.name)->local);
  }
  const at::NoGradGuard no_grad;
  for (const ModelTensor& buffer : model.parts().buffers())
    buffer.tensor.copy_(values.at(buffer.name)->local);
}

void load_sharded_state_dict(PreparedModel& model, const std::vector<ShardedTensor>& state) {
  require_fit(sharded_state_dict(model), state);
  const auto values = by_name(state);
  model.make_whole();
  // Ranks of one host may share the memory of parameters, so all parts meet before any is written.
  for (const ModelTensor& parameter : optimized_parameters(model)) {
    model.parts().set_parameter(parameter.name,
                                model.parts().assemble(parameter.name, values.at(parameter.name)->local));
  }
  const at::NoGradGuard no_grad;
  for (const ModelTensor& buffer : model.parts().buffers())
    buffer.tensor.copy_(values.at(buffer.name)->local);
}

}  // namespace rondo
