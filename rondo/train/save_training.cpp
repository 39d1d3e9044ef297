#include "rondo/train/save_training.h"

#include <functional>
#include <set>
#include <string>

#include "rondo/backend/collectives.h"
#include "rondo/base/collective_call.h"
#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/log.h"
#include "rondo/base/text.h"
#include "rondo/checkpoint/checkpoint.h"
#include "rondo/checkpoint/optimizer_state.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/parallel/ddp/ddp_state.h"
#include "rondo/strategy/own_parameters.h"
#include "rondo/strategy/sharded_state.h"
#include "rondo/train/agreement.h"
#include "rondo/train/collective_checkpoint.h"

namespace rondo {
namespace {

// A view of any loop's training.
struct Loop {
  const Context& context;
  const torch::nn::Module& model;
  PreparedModel& prepared;
  torch::optim::Optimizer& optimizer;
  TrainingPrecision* precision = nullptr;  // set for train_step()
};

Loop loop_of(const OwnTraining& training) {
  return {training.context, training.model, training.prepared, training.optimizer};
}

Loop loop_of(const Context& context, Training& training) {
  return {context, *training.model().module, training.prepared(), training.optimizer(),
          &training.precision()};
}

// Returns the device of `model`; all of it is on one device.
c10::Device device_of_model(const torch::nn::Module& model) {
  for (const at::Tensor& parameter : model.parameters()) return parameter.device();
  return c10::kCPU;
}

const MasterWeights* masters_of(const Loop& loop) {
  return loop.precision != nullptr ? loop.precision->master_weights() : nullptr;
}

// Adds the fields of a loop's checkpoint that are neither weights nor optimizer state. Collective.
void add_loop_state(CheckpointContents& contents, const Context& context, const torch::nn::Module& model,
                    const CommunicationState& communication, std::int64_t step,
                    const nlohmann::json& values) {
  contents.random_states = gather(random_state(device_of_model(model)), context.world(), 0);
  contents.communication_states = gather_states(communication, context.world());
  contents.values = {{"step", step}, {"values", values}, {"world_size", context.world_size()}};
}

// `state` is the state of `loop`.
void save_loop(const std::filesystem::path& root, const Loop& loop, ShardedState state, std::int64_t step,
               const nlohmann::json& values, int keep) {
  const Context& context = loop.context;
  CheckpointContents contents =
      collective_contents(std::move(state), saved_tensors(loop.prepared, loop.model), context.world());
  add_loop_state(contents, context, loop.model, loop.prepared.communication_state(), step, values);
  if (loop.precision != nullptr) contents.values["precision"] = loop.precision->state();
  save_together(context, root, step, std::move(contents), keep);
}

// Tensors of a loop under DistributedDataParallel: those of a checkpoint, and parameters that this rank has
// for itself.
struct DdpTensors {
  NamedTensors saved;
  std::vector<at::Tensor> own = {};
};

DdpTensors tensors_of(const DdpTraining& training) {
  std::set<std::string> names;
  const ModelTensors& reduced = training.ddp.state().tensors;
  for (const ModelTensor& parameter : reduced.parameters) names.insert(parameter.name);
  for (const ModelTensor& buffer : reduced.buffers) names.insert(buffer.name);
  DdpTensors tensors{.saved = tensors_named(training.model, names)};
  for (const ModelTensor& parameter : rondo::tensors_of(training.model).parameters)
    if (!names.contains(parameter.name)) tensors.own.push_back(parameter.tensor);
  return tensors;
}

// Reads the step and values of a checkpoint into `position` before anything is changed.
std::function<void(const nlohmann::json& saved, const std::string& what)> position_reader(
    OwnPosition& position) {
  return [&position](const nlohmann::json& saved, const std::string& what) {
    const auto step = saved.find("step");
    if (step == saved.end() || !step->is_number())
      throw DataError(str(what, ": it has no step; expected a checkpoint of rondo::save"));
    position = {json_integer(*step, json_place(what, "step"), 0),
                saved.value("values", nlohmann::json::object())};
  };
}

// Restores the random streams of `state` if the number of ranks is the same; otherwise keeps the present
// ones.
void restore_random_state(const Context& context, const TrainingState& state, c10::Device device) {
  if (static_cast<int>(state.random_states.size()) == context.world_size())
    set_random_state(state.random_states[static_cast<std::size_t>(context.rank())], device);
}

// Loads a checkpoint without publishing the loaded values.
OwnPosition load_loop(const std::filesystem::path& checkpoint, const Loop& loop, const LoadOptions& options) {
  const Context& context = loop.context;
  PreparedModel& prepared = loop.prepared;
  const MasterWeights* const masters = masters_of(loop);
  prepared.parts().flush();
  TrainingState state{.model = saved_tensors(prepared, loop.model),
                      .optimizers = {{.optimizer = &loop.optimizer}},
                      .own_parameters = own_parameters(prepared, masters),
                      .trust_archives = options.trust_archives};
  // Master weights are the model; the low-precision weights are rounded copies.
  if (masters != nullptr || prepared.parts().optimizes_shards())
    state.shards = optimized_shards(prepared, masters);
  OwnPosition position;
  state.check = position_reader(position);
  run_agreed(context, [&] {
    load_checkpoint(checkpoint, state);
    restore_random_state(context, state, device_of_model(loop.model));
    const std::string lost = prepared.restore_communication(state.communication_states);
    if (!lost.empty() && context.rank() == 0) log::warning(checkpoint.string(), ": ", lost);
    if (loop.precision != nullptr)
      loop.precision->restore(state.values.value("precision", nlohmann::json::object()));
  });
  return position;
}

}  // namespace

void save(const std::filesystem::path& root, const OwnTraining& training, std::int64_t step,
          const nlohmann::json& values, int keep) {
  const CollectiveCallScope call(CollectiveCall::save_loop);
  training.prepared.parts().flush();
  save_loop(root, loop_of(training), local_state(training.prepared, &training.optimizer), step, values, keep);
}

void save(const std::filesystem::path& root, const DdpTraining& training, std::int64_t step,
          const nlohmann::json& values, int keep) {
  const CollectiveCallScope call(CollectiveCall::save_loop);
  const Context& context = training.context;
  {
    const at::NoGradGuard no_gradients;
    training.ddp.before_forward();  // all ranks get rank 0's buffers, as in the next step
  }
  const DdpTensors tensors = tensors_of(training);
  CheckpointContents contents = contents_of({.model = tensors.saved, .optimizers = {}});
  const OptimizerSnapshot optimizer =
      snapshot_optimizer(kOptimizerName, training.optimizer, with_own_parameters(tensors.saved, tensors.own));
  contents.optimizers[kOptimizerName] = optimizer.description;
  for (const NamedTensor& tensor : optimizer.tensors) contents.optimizer_tensors.push_back(source_of(tensor));
  add_loop_state(contents, context, training.model, training.ddp.communication_state(), step, values);
  save_together(context, root, step, std::move(contents), keep);
}

void save(const std::filesystem::path& root, const Context& context, Training& training, std::int64_t step,
          const nlohmann::json& values, int keep) {
  const CollectiveCallScope call(CollectiveCall::save_loop);
  save_loop(root, loop_of(context, training), training.state(), step, values, keep);
}

OwnPosition load(const std::filesystem::path& checkpoint, const OwnTraining& training,
                 const LoadOptions& options) {
  const CollectiveCallScope call(CollectiveCall::load_loop);
  OwnPosition position = load_loop(checkpoint, loop_of(training), options);
  training.prepared.parts().publish_shards();
  return position;
}

OwnPosition load(const std::filesystem::path& checkpoint, const DdpTraining& training,
                 const LoadOptions& options) {
  const CollectiveCallScope call(CollectiveCall::load_loop);
  const Context& context = training.context;
  const DdpTensors tensors = tensors_of(training);
  TrainingState state{.model = tensors.saved,
                      .optimizers = {{.optimizer = &training.optimizer}},
                      .own_parameters = tensors.own,
                      .trust_archives = options.trust_archives};
  OwnPosition position;
  state.check = position_reader(position);
  run_agreed(context, [&] {
    load_checkpoint(checkpoint, state);
    restore_random_state(context, state, device_of_model(training.model));
    const std::string lost = restore_communication(training.ddp, state.communication_states);
    if (!state.communication_states.empty() && !lost.empty() && context.rank() == 0)
      log::warning(checkpoint.string(), ": the saved state of communication ", lost, "; it is reset");
  });
  return position;
}

OwnPosition load(const std::filesystem::path& checkpoint, const Context& context, Training& training,
                 const LoadOptions& options) {
  const CollectiveCallScope call(CollectiveCall::load_loop);
  OwnPosition position = load_loop(checkpoint, loop_of(context, training), options);
  training.state_loaded(position.step);
  return position;
}

}  // namespace rondo
