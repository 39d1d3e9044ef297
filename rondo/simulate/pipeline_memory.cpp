#include "rondo/simulate/pipeline_memory.h"

#include <algorithm>
#include <utility>

namespace rondo::simulate {
namespace {

using pipeline::Action;
using pipeline::ActionKind;

// Bytes of a layer as training runs it: checkpointed or not.
struct ReplayedLayer {
  std::int64_t kept = 0, deferred = 0, gradient = 0, output = 0;
  std::int64_t forward = 0, backward = 0, input = 0, weight = 0;  // workspaces
};

struct ReplayedStage {
  std::vector<ReplayedLayer> layers;
  std::int64_t kept = 0, deferred = 0, gradient = 0;
  std::int64_t from_before = 0, from_behind = 0;  // an activation that it gets, a gradient
  bool before_is_elsewhere = false;               // the stage before is on another rank
  bool splits = false;
  bool has_gradients = false;  // of its parameters, from some micro-batch
};

std::int64_t bytes(std::uint64_t value) { return static_cast<std::int64_t>(value); }

ReplayedLayer replayed(const LayerCost& layer, bool again) {
  ReplayedLayer result{.kept = bytes(again ? layer.checkpointed_activation_bytes : layer.activation_bytes),
                       .deferred = bytes(layer.deferred_bytes),
                       .gradient = bytes(layer.gradient_bytes),
                       .output = bytes(layer.output_bytes),
                       .forward = bytes(layer.forward_workspace_bytes),
                       .backward = bytes(layer.backward_workspace_bytes),
                       .input = bytes(layer.input_workspace_bytes),
                       .weight = bytes(layer.weight_workspace_bytes)};
  if (again) result.backward += bytes(layer.activation_bytes - layer.checkpointed_activation_bytes);
  return result;
}

class PassReplay {
 public:
  PassReplay(const std::vector<LayerCost>& layers, const PipelineChoice& choice,
             const pipeline::Schedule& schedule, int rank, bool splits) {
    for (int number = 0; number < schedule.stages(); ++number) {
      const auto at = static_cast<std::size_t>(number);
      ReplayedStage& stage = stages_.emplace_back();
      if (schedule.rank_of_stage[at] != rank) continue;
      const bool is_last = number + 1 == schedule.stages();
      const std::size_t begin = static_cast<std::size_t>(choice.first[at]),
                        end = is_last ? layers.size() : static_cast<std::size_t>(choice.first[at + 1]);
      for (std::size_t i = begin; i < end; ++i) {
        const ReplayedLayer& layer = stage.layers.emplace_back(replayed(layers[i], choice.checkpointed[i]));
        stage.kept += layer.kept;
        stage.deferred += layer.deferred;
        stage.gradient += layer.gradient;
      }
      if (number > 0) stage.from_before = bytes(layers[begin - 1].output_bytes);
      if (!is_last) stage.from_behind = stage.layers.back().output;
      stage.before_is_elsewhere = number > 0 && schedule.rank_of_stage[at - 1] != rank;
      // Nobody waits for gradients of the first stage's inputs: all of its backward pass is the second part.
      stage.splits = splits && number > 0;
      is_deferred_first_ = splits;
      // What it gives has been sent by then, and is no input of a layer of its own.
      if (stage.splits && !is_last && schedule.rank_of_stage[at + 1] != rank) {
        const std::int64_t output = std::min(stage.layers.back().deferred, stage.from_behind);
        stage.layers.back().deferred -= output;
        stage.deferred -= output;
      }
    }
  }

  void act(const Action& action) {
    ReplayedStage& stage = stages_[static_cast<std::size_t>(action.stage)];
    const bool is_deferred = is_deferred_first_ && action.stage == 0;
    switch (action.kind) {
      case ActionKind::forward:
        return forward(stage);
      case ActionKind::backward:
        return backward(stage);
      case ActionKind::backward_input:
        if (stage.splits) return backward_input(stage);
        return is_deferred ? static_cast<void>(0) : backward(stage);
      case ActionKind::backward_weight:
        if (stage.splits) return backward_weight(stage);
        return is_deferred ? backward(stage) : static_cast<void>(0);
      case ActionKind::receive_activation:
        return hold(stage.from_before);
      case ActionKind::receive_gradient:
        return hold(stage.from_behind);
      case ActionKind::send_activation:  // kept for backward in any case
      case ActionKind::send_gradient:
        return;
    }
  }

  std::uint64_t most() const { return static_cast<std::uint64_t>(most_); }

 private:
  // From now on so much more is there, besides what is there for a moment.
  void hold(std::int64_t more, std::int64_t for_a_moment = 0) {
    alive_ += more;
    most_ = std::max(most_, alive_ + for_a_moment);
  }

  void forward(const ReplayedStage& stage) {
    for (const ReplayedLayer& layer : stage.layers) hold(layer.kept, layer.forward);
    end_pass(0);
  }

  void backward(ReplayedStage& stage) {
    for (std::size_t i = stage.layers.size(); i-- > 0;) {
      const ReplayedLayer& layer = stage.layers[i];
      hold(0, layer.backward - given(stage, i));
      hold(-layer.kept);
      add_gradient(stage, layer);
    }
    stage.has_gradients = true;
    hold(-received(stage) - stage.from_behind);
    end_pass(gradient_of_inputs(stage));
  }

  void backward_input(ReplayedStage& stage) {
    for (std::size_t i = stage.layers.size(); i-- > 0;) {
      const ReplayedLayer& layer = stage.layers[i];
      hold(0, layer.input - given(stage, i));
      hold(layer.deferred - layer.kept);
    }
    hold(-stage.from_behind);
    end_pass(gradient_of_inputs(stage));
  }

  void backward_weight(ReplayedStage& stage) {
    for (const ReplayedLayer& layer : stage.layers) {
      hold(0, layer.weight);
      hold(-layer.deferred);
      add_gradient(stage, layer);
    }
    stage.has_gradients = true;
    hold(-received(stage));
    end_pass(0);
  }

  // The gradient of the stage's output is there all the time; a layer's workspace counts that of its own.
  static std::int64_t given(const ReplayedStage& stage, std::size_t layer) {
    return layer + 1 == stage.layers.size() ? stage.from_behind : 0;
  }

  void add_gradient(const ReplayedStage& stage, const ReplayedLayer& layer) {
    if (!stage.has_gradients) hold(layer.gradient);
  }

  // What a stage on this rank has given is that stage's own output.
  static std::int64_t received(const ReplayedStage& stage) {
    return stage.before_is_elsewhere ? stage.from_before : 0;
  }

  // What is sent of them; where the stage before is on this rank, its backward pass frees them.
  std::int64_t gradient_of_inputs(const ReplayedStage& stage) {
    if (!stage.before_is_elsewhere) hold(stage.from_before);
    return received(stage);
  }

  // What a pass sends is with the other rank when the next pass has ended.
  void end_pass(std::int64_t sent) { hold(sent - std::exchange(sent_, sent)); }

  std::vector<ReplayedStage> stages_;  // those of other ranks are empty
  bool is_deferred_first_ = false;
  std::int64_t alive_ = 0, sent_ = 0, most_ = 0;
};

}  // namespace

std::uint64_t peak_of_passes(const std::vector<LayerCost>& layers, const PipelineChoice& choice,
                             const pipeline::Schedule& schedule, int rank, int passes, bool splits) {
  PassReplay replay(layers, choice, schedule, rank, splits);
  // The second pass begins with the gradients of the first; the others are like it.
  for (int pass = 0; pass < std::min(passes, 2); ++pass) {
    for (const Action& action : schedule.actions[static_cast<std::size_t>(rank)]) replay.act(action);
  }
  return replay.most();
}

}  // namespace rondo::simulate
