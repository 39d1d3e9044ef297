#include "rondo/train/save_training.h"

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/log.h"
#include "rondo/base/text.h"
#include "rondo/checkpoint/checkpoint.h"
#include "rondo/checkpoint/random_state.h"
#include "rondo/strategy/sharded_state.h"
#include "rondo/train/agreement.h"
#include "rondo/train/collective_checkpoint.h"
#include "rondo/train/gathered_states.h"

namespace rondo {
namespace {

// Of what `model` is on; all of it is on one.
c10::Device device_of_model(const torch::nn::Module& model) {
  for (const at::Tensor& parameter : model.parameters()) return parameter.device();
  return c10::kCPU;
}

}  // namespace

void save(const std::filesystem::path& root, const OwnTraining& training, std::int64_t step,
          const nlohmann::json& values, int keep) {
  const Context& context = training.context;
  training.prepared.parts().flush();
  CheckpointContents contents = collective_contents(local_state(training.prepared, &training.optimizer),
                                                    named_tensors(training.model), context.world());
  contents.random_states = gather(random_state(device_of_model(training.model)), context.world(), 0);
  contents.communication_states = gather_states(training.prepared.communication_state(), context.world());
  contents.values = {{"step", step}, {"values", values}, {"world_size", context.world_size()}};
  save_together(context, root, step, std::move(contents), keep);
}

OwnPosition load(const std::filesystem::path& checkpoint, const OwnTraining& training) {
  const Context& context = training.context;
  PreparedModel& prepared = training.prepared;
  prepared.parts().flush();
  TrainingState state{.model = named_tensors(training.model),
                      .optimizers = {{.optimizer = &training.optimizer}}};
  if (prepared.parts().optimizes_shards()) state.shards = prepared.parts().shards();
  OwnPosition position;
  state.check = [&](const nlohmann::json& saved, const std::string& what) {
    const auto step = saved.find("step");
    if (step == saved.end() || !step->is_number())
      throw DataError(str(what, ": it has no step; expected a checkpoint of rondo::save"));
    position = {json_integer(*step, json_place(what, "step"), 0),
                saved.value("values", nlohmann::json::object())};
  };
  run_agreed(context, [&] {
    load_checkpoint(checkpoint, state);
    // At another number of ranks random streams cannot continue; they stay as they are.
    const auto rank = static_cast<std::size_t>(context.rank());
    if (static_cast<int>(state.random_states.size()) == context.world_size())
      set_random_state(state.random_states[rank], device_of_model(training.model));
    const std::string lost = prepared.restore_communication(state.communication_states);
    if (!lost.empty() && rank == 0) log::warning(checkpoint.string(), ": ", lost);
  });
  prepared.parts().publish_shards();
  return position;
}

}  // namespace rondo
