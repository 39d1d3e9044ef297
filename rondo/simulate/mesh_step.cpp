#include "rondo/simulate/mesh_step.h"

#include <algorithm>
#include <utility>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo::simulate {

namespace {

std::size_t at(int number) { return static_cast<std::size_t>(number); }

std::uint64_t part_of_ranks(std::uint64_t bytes, int ranks) {
  const auto n = static_cast<std::uint64_t>(ranks);
  return (bytes + n - 1) / n;
}

void check_choice(const PipelineChoice& choice, std::size_t layers, const pipeline::Schedule& schedule) {
  const auto is_wrong = [&](std::size_t stage) {
    const int end = stage + 1 < choice.first.size() ? choice.first[stage + 1] : static_cast<int>(layers);
    return choice.first[stage] >= end;
  };
  bool wrong = choice.first.size() != at(schedule.stages()) || choice.first.front() != 0;
  for (std::size_t stage = 0; !wrong && stage < choice.first.size(); ++stage) wrong = is_wrong(stage);
  if (wrong)
    throw UsageError(str("cuts before layers ", join(choice.first, ", "), " do not make ", schedule.stages(),
                         " stages of ", layers, " layers"));
  if (choice.strategies.size() != at(schedule.ranks) || choice.checkpointed.size() != layers)
    throw UsageError(str("a pipeline of ", schedule.ranks, " ranks and ", layers,
                         " layers was told strategies of ", choice.strategies.size(),
                         " and checkpointing of ", choice.checkpointed.size()));
}

}  // namespace

bool splits_backward(const std::string& schedule) { return schedule.starts_with("zb"); }

bool splits_backward(const PipelineChoice& choice) {
  return splits_backward(choice.schedule) &&
         std::find(choice.checkpointed.begin(), choice.checkpointed.end(), true) == choice.checkpointed.end();
}

void StateCost::add(const LayerCost& layer) {
  parameter_bytes += layer.parameter_bytes;
  gradient_bytes += layer.gradient_bytes;
  own_gradient_bytes += layer.own_gradient_bytes;
  optimizer_bytes += layer.optimizer_bytes;
  optimizer_s += layer.optimizer_s;
}

// A stage keeps its full parameters from the first micro-batch to the last, even under zero3.
std::uint64_t StateCost::bytes_in_passes(cost::Strategy strategy, int ranks) const {
  const std::uint64_t own =
      ranks > 1 && shards_parameters(strategy) ? part_of_ranks(parameter_bytes, ranks) : 0;
  return own + parameter_bytes +
         (shards_optimizer(strategy) ? part_of_ranks(optimizer_bytes, ranks) : optimizer_bytes);
}

std::uint64_t StateCost::bytes_behind_passes(cost::Strategy strategy, int ranks, bool in_place) const {
  std::uint64_t bytes = bytes_in_passes(strategy, ranks) + gradient_bytes;
  // Gradients are reduced in a flat copy; a sharded reduction has another buffer for its shard.
  if (ranks > 1 && !in_place)
    bytes += gradient_bytes + (shards_optimizer(strategy) ? part_of_ranks(gradient_bytes, ranks) : 0);
  return bytes;
}

double StateCost::update_s(cost::Strategy strategy, int ranks) const {
  return shards_optimizer(strategy) ? optimizer_s / ranks : optimizer_s;
}

double StateCost::communication_s(cost::Strategy strategy, int ranks, const cost::Link& link) const {
  if (ranks == 1) return 0;
  const auto gradients = static_cast<double>(gradient_bytes - own_gradient_bytes),
             parameters = static_cast<double>(parameter_bytes);
  if (!shards_optimizer(strategy)) return link.seconds(cost::Collective::all_reduce, gradients, ranks);
  return link.seconds(cost::Collective::reduce_scatter, gradients, ranks) +
         (link.parameters_in_place ? 0 : link.seconds(cost::Collective::all_gather, parameters, ranks));
}

double PipelineForecast::idle_share() const {
  double most = 0;
  for (const PipelineRank& rank : ranks) most = std::max(most, rank.idle_s);
  return step_s > 0 ? most / step_s : 0;
}

PipelineCosts::PipelineCosts(const cost::Profile& profile, const MeshShape& shape, const MeshLinks& links,
                             int micro_batches)
    : shape_(shape),
      links_(links),
      base_bytes_(
          profile.engine_bytes + engine_bytes_of_groups(profile, shape) +
          static_cast<std::uint64_t>(static_cast<double>(profile.base_bytes - profile.engine_bytes) *
                                     std::max(1.0, shape.samples / static_cast<double>(profile.batch_size)))),
      overhead_s_(shape.copies() > 1 ? profile.overhead_s : 0),
      in_place_(links.data.parameters_in_place) {
  if (micro_batches < 1 || shape.samples < micro_batches)
    throw UsageError(
        str("a batch of ", shape.samples, " samples cannot be cut into ", micro_batches, " micro-batches"));
  layers_ = layer_costs(profile, shape, shape.samples / micro_batches, links);
}

pipeline::StageTimes PipelineCosts::stage_times(int begin, int end, bool splits,
                                                const std::vector<bool>& checkpointed) const {
  pipeline::StageTimes times{0, 0, 0, 0};
  for (int i = begin; i < end; ++i) {
    const LayerCost& layer = layers_[at(i)];
    times.forward_s += layer.forward_s;
    if (splits && begin == 0) {
      times.backward_weight_s += layer.backward_s;
    } else {
      times.backward_input_s += splits ? layer.backward_input_s : layer.backward_s;
      times.backward_weight_s += splits ? layer.backward_weight_s : 0;
    }
    if (checkpointed[at(i)]) times.backward_input_s += layer.forward_s;
  }
  const auto message = [&](int boundary) {
    if (boundary == 0 || boundary == static_cast<int>(layers_.size())) return 0.0;
    return links_.pipeline.message_seconds(static_cast<double>(layers_[at(boundary - 1)].output_bytes));
  };
  times.message_s = std::max(message(begin), message(end));
  return times;
}

std::uint64_t PipelineCosts::rank_peak(const PipelineChoice& choice, const pipeline::Schedule& schedule,
                                       int rank) const {
  StateCost state;
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    if (schedule.rank_of_stage[at(stage)] != rank) continue;
    const int end =
        stage + 1 < schedule.stages() ? choice.first[at(stage + 1)] : static_cast<int>(layers_.size());
    for (int i = choice.first[at(stage)]; i < end; ++i) state.add(layers_[at(i)]);
  }
  const cost::Strategy strategy = choice.strategies[at(rank)];
  const std::uint64_t passes =
      peak_of_passes(layers_, choice, schedule, rank, shape_.passes, splits_backward(choice));
  return base_bytes_ + std::max(state.bytes_in_passes(strategy, shape_.copies()) + passes,
                                state.bytes_behind_passes(strategy, shape_.copies(), in_place_));
}

PipelineForecast PipelineCosts::forecast(const PipelineChoice& choice) const {
  PipelineForecast result;
  result.schedule =
      pipeline::make_schedule(choice.schedule, shape_.pipeline, choice.micro_batches, choice.chunks);
  const pipeline::Schedule& schedule = result.schedule;
  check_choice(choice, layers_.size(), schedule);
  std::vector<pipeline::StageTimes> times;
  std::vector<StateCost> states(at(shape_.pipeline));
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    const int begin = choice.first[at(stage)];
    const int end =
        stage + 1 < schedule.stages() ? choice.first[at(stage + 1)] : static_cast<int>(layers_.size());
    times.push_back(stage_times(begin, end, splits_backward(choice), choice.checkpointed));
    StateCost& state = states[at(schedule.rank_of_stage[at(stage)])];
    for (int i = begin; i < end; ++i) state.add(layers_[at(i)]);
  }
  result.timeline = pipeline::simulate(schedule, times);
  double own_end = 0;  // end of the last rank to finish, in the last pass
  for (int rank = 0; rank < shape_.pipeline; ++rank) {
    const cost::Strategy strategy = choice.strategies[at(rank)];
    PipelineRank& of = result.ranks.emplace_back();
    of.busy_s = shape_.passes * result.timeline.busy_s[at(rank)];
    of.exposed_s = communication_s(states[at(rank)], strategy);
    of.update_s = states[at(rank)].update_s(strategy, shape_.copies());
    of.peak_bytes = rank_peak(choice, schedule, rank);
    result.peak_bytes = std::max(result.peak_bytes, of.peak_bytes);
    const auto& slots = result.timeline.slots[at(rank)];
    own_end = std::max(own_end, (slots.empty() ? 0 : slots.back().end_s) + of.exposed_s + of.update_s);
  }
  // Ranks reduce the loss at the end of a step, so all ranks begin the next step when the last one has
  // finished.
  result.step_s = (shape_.passes - 1) * result.timeline.step_s + own_end + overhead_s_;
  for (PipelineRank& of : result.ranks)
    of.idle_s = result.step_s - of.busy_s - of.exposed_s - of.update_s - overhead_s_;
  return result;
}

double PipelineCosts::least_step_s(int micro_batches) const {
  double passes = 0, largest = 0;
  StateCost all;
  for (const LayerCost& layer : layers_) {
    const double own =
        layer.forward_s + std::min(layer.backward_s, layer.backward_input_s + layer.backward_weight_s);
    passes += own;
    largest = std::max(largest, own);
    all.add(layer);
  }
  const double count = shape_.passes * micro_batches;
  return std::max(count * passes / shape_.pipeline, count * largest) +
         all.optimizer_s / (shape_.pipeline * shape_.copies()) + overhead_s_;
}

namespace {

using pipeline::Action;
using pipeline::ActionKind;

// Bytes of a layer in training, with or without checkpointing.
struct ReplayedLayer {
  std::int64_t kept = 0, deferred = 0, gradient = 0, output = 0;
  std::int64_t forward = 0, backward = 0, input = 0, weight = 0;  // workspaces
};

struct ReplayedStage {
  std::vector<ReplayedLayer> layers;
  std::int64_t kept = 0, deferred = 0, gradient = 0;
  std::int64_t from_before = 0,
               from_behind = 0;      // bytes of the received activation and of the received gradient
  bool before_is_elsewhere = false;  // previous stage is on another rank
  bool splits = false;
  bool has_gradients = false;  // parameter gradients are allocated
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
      // No stage needs the gradients of the first stage's inputs: its whole backward pass is the second part.
      stage.splits = splits && number > 0;
      is_deferred_first_ = splits;
      // Its output has been sent by then, and no layer of this stage has it as input.
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
      case ActionKind::send_activation:  // kept for backward anyway
      case ActionKind::send_gradient:
        return;
    }
  }

  std::uint64_t most() const { return static_cast<std::uint64_t>(most_); }

 private:
  // Changes the memory in use by `more`, and records the peak with `for_a_moment` on top.
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

  // Returns the gradient of the stage's output, which is alive throughout; the last layer's workspace
  // includes it.
  static std::int64_t given(const ReplayedStage& stage, std::size_t layer) {
    return layer + 1 == stage.layers.size() ? stage.from_behind : 0;
  }

  void add_gradient(const ReplayedStage& stage, const ReplayedLayer& layer) {
    if (!stage.has_gradients) hold(layer.gradient);
  }

  // Returns the received bytes: 0 if the sending stage is on this rank, whose output is the input.
  static std::int64_t received(const ReplayedStage& stage) {
    return stage.before_is_elsewhere ? stage.from_before : 0;
  }

  // Returns the bytes sent. If the previous stage is on this rank, its backward pass frees the gradient.
  std::int64_t gradient_of_inputs(const ReplayedStage& stage) {
    if (!stage.before_is_elsewhere) hold(stage.from_before);
    return received(stage);
  }

  // Ends a pass. Its sent bytes are freed when the next pass has ended.
  void end_pass(std::int64_t sent) { hold(sent - std::exchange(sent_, sent)); }

  std::vector<ReplayedStage> stages_;  // empty for stages of other ranks
  bool is_deferred_first_ = false;
  std::int64_t alive_ = 0, sent_ = 0, most_ = 0;
};

}  // namespace

std::uint64_t peak_of_passes(const std::vector<LayerCost>& layers, const PipelineChoice& choice,
                             const pipeline::Schedule& schedule, int rank, int passes, bool splits) {
  PassReplay replay(layers, choice, schedule, rank, splits);
  // The second pass begins with allocated gradients; later passes are the same.
  for (int pass = 0; pass < std::min(passes, 2); ++pass) {
    for (const Action& action : schedule.actions[static_cast<std::size_t>(rank)]) replay.act(action);
  }
  return replay.most();
}

}  // namespace rondo::simulate
