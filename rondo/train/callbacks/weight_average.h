#pragma once

#include <filesystem>
#include <set>
#include <string>

#include "rondo/train/trainer.h"

namespace rondo {

// The exponential moving average of the weights: average = decay * average + (1 - decay) * weights after each
// step. Validations see the average, and so do checkpoints of the best validations and whoever looks at the
// model after training. Each rank averages what it has: its shards, where it has those; weights of 16 bits in
// float32. Buffers are those of the last step. Of local_sgd it averages the mean of the replicas, which costs
// an all-reduce at each update. Weights that are put (Trainer::put_weights) begin a new average. Not with
// parameter servers, whose weights are those of all workers: training with it is a UsageError.
class WeightAverage final : public Callback {
 public:
  // How it is averaged, and where it is kept.
  struct Options {
    double decay = 0.999;          // what of the average stays in an update
    std::int64_t every_steps = 1;  // steps between updates
    bool validate = true;          // validations see the average
    bool keep_at_end = true;       // training ends with the average; a pre-empted one with the weights
    // Beside every checkpoint of the training one whose weights are the average, in the types of the model:
    // what a resumed run goes on with. Without it a resumed run begins with the weights, and says so.
    std::filesystem::path directory = {};
    // Where a resumed run looks first: such a directory of the run that its checkpoint is of. May be empty.
    std::filesystem::path resumed_directory = {};
    int keep = 3;  // newest of those that stay, besides those whose checkpoint of the training stands
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
  bool knows_average_of(Trainer& trainer, std::int64_t step) const;
  std::string saved_average(const Context& context, std::int64_t step) const;
  void begin(Trainer& trainer);
  void follow_replaced_weights(Trainer& trainer);
  void show(Trainer& trainer);
  void prune(std::int64_t step) const;

  Options options_;
  WeightsCopy average_;
  std::int64_t step_ = -1;                 // that it is of
  std::int64_t replaced_ = 0;              // Trainer::times_replaced() of the weights that it is of
  std::set<std::filesystem::path> roots_;  // of checkpoints of the training
  bool saving_ = false;                    // the average
  bool was_shown_ = false;                 // the average, when a checkpoint of the training began
};

}  // namespace rondo
