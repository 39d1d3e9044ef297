#include "rondo/train/callbacks/weight_average.h"

#include <torch/types.h>
#include <torch/utils.h>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/format/checkpoint_directory.h"
#include "rondo/train/callbacks/save_or_warn.h"

namespace rondo {

WeightAverage::WeightAverage(Options options) : options_(std::move(options)) {
  if (!(options_.decay >= 0 && options_.decay < 1))
    throw UsageError(str("the decay ", options_.decay, " of averaged weights must lie in [0, 1)"));
  if (options_.every_steps < 1)
    throw UsageError(str("averaging every ", options_.every_steps, " steps must be one or more"));
}

void WeightAverage::on_train_begin(Trainer& trainer, const FitOutline& outline) {
  if (trainer.strategy().is_served()) {
    throw UsageError(str("averaged weights are of ranks that step together; with strategy ",
                         trainer.strategy().name(), " servers hold the weights of workers that do not"));
  }
  const Context& context = trainer.strategy().context();
  const std::filesystem::path own = options_.directory / checkpoint_name(outline.first_step);
  const bool here = context.rank() == 0 && !options_.directory.empty() && outline.first_step > 0 &&
                    std::filesystem::exists(own);
  const bool resumes = broadcast_object(here, context.world()).get<bool>();
  saving_ = false;
  average_ = resumes ? trainer.weights_of(own) : trainer.copy_weights();
}

// After a validation that was due from the run before there was no step that could be complete.
void WeightAverage::on_step_begin(Trainer& trainer, std::int64_t) { trainer.show_trained_weights(); }

void WeightAverage::on_step_end(Trainer& trainer, const StepRecord& record) {
  if (record.step % options_.every_steps != 0) return;
  const torch::NoGradGuard no_gradients;
  const std::vector<Shard> now = trainer.weights();
  for (std::size_t i = 0; i < now.size(); ++i) {
    const at::Tensor& value = now[i].local;
    if (value.requires_grad()) {
      average_[i].local.mul_(options_.decay).add_(value, 1 - options_.decay);
    } else {
      average_[i].local.copy_(value);
    }
  }
}

void WeightAverage::on_validation_begin(Trainer& trainer) {
  if (options_.validate) trainer.show_weights(average_);
}

void WeightAverage::on_step_complete(Trainer& trainer, const StepRecord&) { trainer.show_trained_weights(); }

// A checkpoint of the training has its own weights, whatever the order of callbacks.
void WeightAverage::before_save(Trainer& trainer) {
  if (!saving_) was_shown_ = trainer.show_trained_weights();
}

void WeightAverage::after_save(Trainer& trainer, const std::filesystem::path&) {
  if (saving_) return;
  if (!options_.directory.empty()) {
    trainer.show_weights(average_);
    saving_ = true;
    save_or_warn(trainer, "the checkpoint of averaged weights",
                 [&] { trainer.save(options_.directory, options_.keep); });
    saving_ = false;
    trainer.show_trained_weights();
  }
  if (was_shown_) trainer.show_weights(average_);
}

void WeightAverage::on_train_end(Trainer& trainer, const FitResult& result) {
  if (options_.keep_at_end && result.end != FitEnd::preempted) {
    trainer.show_weights(average_);
  } else {
    trainer.show_trained_weights();
  }
}

}  // namespace rondo
