#pragma once

#include <filesystem>
#include <set>
#include <string>

#include "rondo/train/trainer.h"

namespace rondo {

// A callback with the exponential moving average of the weights: average = decay * average + (1 - decay) *
// weights after each step. Validations, checkpoints of the best validations, and readers of the model after
// training see the average. Each rank averages its part: its shards, if weights are sharded; 16-bit weights
// in float32. Buffers are those of the last step. Under local_sgd it averages the mean of the replicas, which
// costs an all-reduce at each update. Replaced weights (Trainer::put_weights) start a new average. Training
// with parameter servers throws UsageError, because the weights are those of all workers.
class WeightAverage final : public Callback {
 public:
  // Averaging and storage.
  struct Options {
    double decay = 0.999;          // weight of the old average in an update
    std::int64_t every_steps = 1;  // steps between updates
    bool validate = true;          // whether validations see the average
    bool keep_at_end = true;       // whether training ends with the average; a pre-empted one keeps the
                                   // weights
    // Directory for a checkpoint of the average, in the model's dtypes, beside every checkpoint of the
    // training; a resumed run continues from it. Without it a resumed run starts from the weights with a
    // warning.
    std::filesystem::path directory = {};
    // Directory that a resumed run searches first: that of the run whose checkpoint it loads. May be empty.
    std::filesystem::path resumed_directory = {};
    int keep = 3;  // number of newest averages to keep, besides those whose training checkpoint exists
  };
  // Throws UsageError for a decay outside [0, 1).
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
  bool knows_average_of(Trainer& trainer, std::int64_t step) const;
  std::string saved_average(const Context& context, std::int64_t step) const;
  void begin(Trainer& trainer);
  void follow_replaced_weights(Trainer& trainer);
  void show(Trainer& trainer);
  void prune(std::int64_t step) const;

  Options options_;
  WeightsCopy average_;
  std::int64_t step_ = -1;                 // step of average_
  std::int64_t replaced_ = 0;              // Trainer::times_replaced() of the averaged weights
  std::set<std::filesystem::path> roots_;  // directories of training checkpoints
  bool saving_ = false;                    // the average is being saved
  bool was_shown_ = false;                 // the average was shown when a checkpoint of the training began
};

}  // namespace rondo
