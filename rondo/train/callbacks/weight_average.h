#pragma once

#include <filesystem>

#include "rondo/train/trainer.h"

namespace rondo {

// The exponential moving average of the weights: average = decay * average + (1 - decay) * weights after each
// step. Validations see the average, and so does whoever looks at the model after training. Each rank
// averages what it has: its shards, where it has those. Buffers are those of the last step. Of local_sgd it
// averages the mean of the replicas, which costs an all-reduce at each update. Not with parameter servers,
// whose weights are those of all workers: training with it is a UsageError.
class WeightAverage final : public Callback {
 public:
  // How it is averaged, and where it is kept.
  struct Options {
    double decay = 0.999;          // what of the average stays in an update
    std::int64_t every_steps = 1;  // steps between updates
    bool validate = true;          // validations see the average
    bool keep_at_end = true;       // training ends with the average; a pre-empted one with the weights
    // Beside every checkpoint of the training one whose weights are the average: what a resumed run goes on
    // with. Empty: a resumed run begins with the weights.
    std::filesystem::path directory = {};
    int keep = 3;  // newest of those that stay
  };
  // Throws UsageError for a decay outside of [0, 1).
  explicit WeightAverage(Options options);

  std::string name() const override { return "weight_average"; }
  void on_train_begin(Trainer& trainer, const FitOutline& outline) override;
  void on_step_begin(Trainer& trainer, std::int64_t step) override;
  void on_step_end(Trainer& trainer, const StepRecord& record) override;
  void on_validation_begin(Trainer& trainer) override;
  void on_step_complete(Trainer& trainer, const StepRecord& record) override;
  void before_save(Trainer& trainer) override;
  void after_save(Trainer& trainer, const std::filesystem::path& root) override;
  void on_train_end(Trainer& trainer, const FitResult& result) override;

 private:
  Options options_;
  WeightsCopy average_;
  bool saving_ = false;     // the average
  bool was_shown_ = false;  // the average, when a checkpoint of the training began
};

}  // namespace rondo
