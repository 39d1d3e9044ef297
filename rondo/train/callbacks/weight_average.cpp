#include "rondo/train/callbacks/weight_average.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <limits>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/base/log.h"
#include "rondo/base/printable.h"
#include "rondo/base/text.h"
#include "rondo/format/checkpoint_directory.h"
#include "rondo/train/callbacks/save_or_warn.h"

namespace rondo {
namespace {

// Converts 16-bit weights: rounding would lose small changes of a step.
WeightsCopy in_float32(WeightsCopy weights) {
  for (Shard& shard : weights) {
    if (shard.local.is_floating_point() && shard.local.element_size() < 4)
      shard.local = shard.local.to(at::kFloat);
  }
  return weights;
}

bool have_same_places(const WeightsCopy& a, const WeightsCopy& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Shard& x, const Shard& y) { return x.name == y.name && same_address(x, y); });
}

}  // namespace

WeightAverage::WeightAverage(Options options) : options_(std::move(options)) {
  if (!(options_.decay >= 0 && options_.decay < 1))
    throw UsageError(str("the decay ", options_.decay, " of averaged weights must lie in [0, 1)"));
  if (options_.every_steps < 1)
    throw UsageError(str("averaging every ", options_.every_steps, " steps must be one or more"));
}

void WeightAverage::on_train_begin(Trainer& trainer, const FitOutline& outline) {
  if (trainer.strategy().is_served()) {
    throw UsageError(str("averaged weights need ranks that step together; with strategy ",
                         trainer.strategy().name(), " servers hold the weights of workers that do not"));
  }
  saving_ = false;
  if (!options_.directory.empty()) require_writable(trainer.strategy().context(), options_.directory);
  if (knows_average_of(trainer, outline.first_step)) return;
  const Context& context = trainer.strategy().context();
  const std::string saved = broadcast_object(saved_average(context, outline.first_step), context.world());
  if (saved.empty()) {
    begin(trainer);
    if (outline.first_step > 0 && context.rank() == 0) {
      log::warning("weight_average: there is no average of the weights of step ", outline.first_step,
                   "; a new one starts from the current weights");
    }
  } else {
    average_ = in_float32(trainer.weights_of(saved));
    replaced_ = trainer.times_replaced();
  }
  step_ = outline.first_step;
}

// Returns whether all ranks have the average from an earlier fit. Ranks that have joined since have none, and
// others may have other shards.
bool WeightAverage::knows_average_of(Trainer& trainer, std::int64_t step) const {
  const bool knows = step_ == step && replaced_ == trainer.times_replaced();
  const bool fits = have_same_places(average_, trainer.weights());
  const Group& world = trainer.strategy().context().world();
  at::Tensor missing = at::zeros({1}, at::TensorOptions(at::kInt).device(world.traits().control_device()));
  if (!knows || !fits || step == 0) missing.fill_(1);
  all_reduce(missing, world, ReduceOp::MAX);
  return missing.item<int>() == 0;
}

// Returns the saved average on rank 0, whose disk decides for all ranks; empty if there is none.
std::string WeightAverage::saved_average(const Context& context, std::int64_t step) const {
  if (context.rank() != 0 || step == 0) return {};
  for (const std::filesystem::path& directory : {options_.resumed_directory, options_.directory}) {
    const std::filesystem::path saved = directory / checkpoint_name(step);
    if (!directory.empty() && std::filesystem::exists(saved)) return saved.string();
  }
  return {};
}

void WeightAverage::begin(Trainer& trainer) {
  average_ = in_float32(trainer.copy_weights());
  replaced_ = trainer.times_replaced();
}

void WeightAverage::follow_replaced_weights(Trainer& trainer) {
  if (replaced_ != trainer.times_replaced()) begin(trainer);
}

// A validation that was due from the previous run has no step and so no on_step_complete().
void WeightAverage::on_step_begin(Trainer& trainer, std::int64_t) { trainer.show_trained_weights(); }

void WeightAverage::on_step_end(Trainer& trainer, const StepRecord& record) {
  step_ = record.step;
  follow_replaced_weights(trainer);
  if (record.step % options_.every_steps != 0) return;
  const torch::NoGradGuard no_gradients;
  const std::vector<Shard> now = trainer.weights();
  for (std::size_t i = 0; i < now.size(); ++i) {
    const at::Tensor& value = now[i].local;
    if (value.requires_grad()) average_[i].local.mul_(options_.decay).add_(value, 1 - options_.decay);
  }
}

void WeightAverage::show(Trainer& trainer) {
  follow_replaced_weights(trainer);
  {
    const torch::NoGradGuard no_gradients;
    const std::vector<Shard> now = trainer.weights();
    for (std::size_t i = 0; i < now.size(); ++i) {
      if (!now[i].local.requires_grad()) average_[i].local.copy_(now[i].local);
    }
  }
  trainer.show_weights(average_);
}

void WeightAverage::on_validation_begin(Trainer& trainer) {
  if (options_.validate) show(trainer);
}

void WeightAverage::on_step_complete(Trainer& trainer, const StepRecord&) { trainer.show_trained_weights(); }

// Makes a checkpoint of the training contain the trained weights for any order of callbacks, and writes the
// average to disk first.
void WeightAverage::before_save(Trainer& trainer) {
  if (saving_) return;
  was_shown_ = trainer.show_trained_weights();
  if (trainer.save_options() == nullptr) return;
  if (trainer.save_options()->of_validation) {
    if (options_.validate) show(trainer);
  } else if (!options_.directory.empty()) {
    show(trainer);
    saving_ = true;
    // Keeps all averages until the checkpoint of the training is complete: after_save() prunes them.
    save_or_warn(trainer, "the checkpoint of averaged weights",
                 [&] { trainer.save(options_.directory, std::numeric_limits<int>::max()); });
    saving_ = false;
    trainer.show_trained_weights();
  }
}

void WeightAverage::after_save(Trainer& trainer, const std::filesystem::path& root) {
  if (saving_) return;
  if (was_shown_) {
    show(trainer);
  } else {
    trainer.show_trained_weights();
  }
  if (options_.directory.empty() || trainer.save_options()->of_validation) return;
  roots_.insert(root);
  if (trainer.strategy().context().rank() == 0) prune(trainer.position().step);
}

// Keeps averages whose checkpoint exists, and the newest ones.
void WeightAverage::prune(std::int64_t step) const {
  std::vector<CheckpointEntry> averages = step_directories(options_.directory);
  std::erase_if(averages, [&](const CheckpointEntry& entry) { return entry.step > step; });
  const auto newest = std::min(averages.size(), static_cast<std::size_t>(std::max(1, options_.keep)));
  averages.resize(averages.size() - newest);
  std::erase_if(averages, [&](const CheckpointEntry& entry) {
    return std::any_of(roots_.begin(), roots_.end(), [&](const std::filesystem::path& root) {
      return std::filesystem::exists(root / checkpoint_name(entry.step));
    });
  });
  try {
    for (const CheckpointEntry& entry : averages) remove_checkpoint(entry.path);
  } catch (const std::exception& error) {
    log::warning("weight_average: an old average could not be removed: ", plain_message(error));
  }
}

void WeightAverage::on_train_end(Trainer& trainer, const FitResult& result) {
  if (options_.keep_at_end && result.end != FitEnd::preempted) {
    show(trainer);
  } else {
    trainer.show_trained_weights();
  }
}

}  // namespace rondo
