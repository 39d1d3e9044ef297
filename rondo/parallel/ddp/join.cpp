#include "rondo/parallel/ddp/join.h"

#include <torch/types.h>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/parallel/ddp/ddp_state.h"
#include "rondo/parallel/gradients/model_agreement.h"

namespace rondo {
namespace {

using State = DistributedDataParallel::State;

// A scope in which models are in join mode.
class JoinMode {
 public:
  JoinMode(std::vector<State*> models, const JoinOptions& options) : models_(std::move(models)) {
    for (State* model : models_) {
      model->join = options;
      model->reducer->set_divide_by_active(!options.divide_by_initial_world_size);
    }
  }
  ~JoinMode() {
    for (State* model : models_) {
      model->join.reset();
      model->samples.reset();
      model->reducer->set_divide_by_active(false);
      model->announcement->clear();
    }
  }
  JoinMode(const JoinMode&) = delete;
  JoinMode& operator=(const JoinMode&) = delete;

 private:
  std::vector<State*> models_;
};

// Takes part in one step of the ranks that still have data. Returns false if there are none.
bool join_step(State& model) {
  StepAnnouncement& announcement = *model.announcement;
  announcement.start({.active = false});
  const std::vector<RankStep>& ranks = announcement.ranks();
  std::vector<int> active;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].active) active.push_back(static_cast<int>(rank));
  }
  if (active.empty()) return false;
  if (model.join->throw_on_early_termination) throw_if_a_rank_has_ended(announcement);
  const RankStep leader = ranks[static_cast<std::size_t>(active.front())];
  if (leader.broadcasts_buffers)
    broadcast_coalesced(model.tensors.buffer_tensors(), model.group, active.front());
  if (leader.synchronises) {
    // Clears `.grad`, whose content belongs to a finished step.
    for (ModelTensor& parameter : model.tensors.parameters) parameter.tensor.mutable_grad().reset();
    model.reducer->synchronize_without_backward();
  }
  return true;
}

}  // namespace

void throw_if_a_rank_has_ended(StepAnnouncement& announcement) {
  std::vector<int> ended;
  for (std::size_t rank = 0; rank < announcement.ranks().size(); ++rank) {
    if (!announcement.ranks()[rank].active) ended.push_back(static_cast<int>(rank));
  }
  if (ended.empty()) return;
  throw MismatchError(str("rank ", join(ended, ", "),
                          " ran out of batches before the others (with_join, throw_on_early_termination)"),
                      ended);
}

void with_join(const std::vector<DistributedDataParallel*>& models,
               const std::function<void()>& training_loop, const JoinOptions& options) {
  std::vector<State*> states;
  for (DistributedDataParallel* model : models) {
    if (model->state().reducer) states.push_back(&model->state());
  }
  const JoinMode mode(states, options);
  training_loop();
  if (states.empty()) return;

  const auto join_all = [&] {
    for (State* model : states) {
      if (!join_step(*model)) return false;
    }
    return true;
  };
  while (join_all()) {
  }
  const std::vector<int>& last = states.front()->announcement->last_active();
  const int source = last.empty() ? 0 : last.back();
  for (State* model : states) broadcast_coalesced(model->tensors.all_tensors(), model->group, source);
}

}  // namespace rondo
