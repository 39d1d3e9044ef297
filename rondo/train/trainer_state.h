#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "rondo/data/dataset.h"
#include "rondo/nn/loss.h"
#include "rondo/observe/memory_observer.h"
#include "rondo/strategy/model_parts.h"
#include "rondo/strategy/prepared_model.h"
#include "rondo/strategy/strategy_reference.h"
#include "rondo/strategy/training.h"
#include "rondo/train/callback.h"
#include "rondo/train/callback_failures.h"
#include "rondo/train/metric.h"
#include "rondo/train/parts_saver.h"
#include "rondo/train/schedule_state.h"
#include "rondo/train/trainer.h"

namespace rondo {

// The state of a training, which a Trainer owns and a FitLoop advances. The trainer's thread uses it.
struct TrainerState {
  StrategyReference strategy;
  c10::Device device;
  PartsSaver parts_saver = {};
  CallbackFailures failures = {};               // failures of hooks since the last agreement
  std::shared_ptr<MemoryObserver> memory = {};  // null if the process does not track its memory
  std::unique_ptr<Training> training = {};      // not null after the Trainer's construction
  LossFunction loss = cross_entropy;            // for evaluations
  std::vector<Metric> metrics = {loss_metric()};
  std::vector<std::string> no_matrices = {};                  // parameters with at most one dimension
  double compiled_rate = 0;                                   // the optimizer's initial learning rate
  bool has_optimizer_options = false;                         // whether compile() got OptimizerOptions
  TrainingPosition position = {};                             // position of the next step
  LastFigures last = {};                                      // figures of the last fit, or restored
  std::vector<std::shared_ptr<Callback>> callbacks = {};      // callbacks of the current or last fit
  nlohmann::json callback_states = nlohmann::json::object();  // restored, for the next fit's callbacks
  std::optional<WeightsCopy> trained_weights = {};            // set while the model shows other weights
  std::int64_t times_replaced = 0;                            // number of replacements of the weights
  const SaveOptions* save_options = nullptr;                  // options of the current save()
  // Samples, global batch, seed and shuffling that the position within an epoch refers to: of the last fit,
  // or restored.
  nlohmann::json sampling = nlohmann::json::object();
  std::optional<ScheduleState> schedule = {};  // schedule of the last fit, or restored; empty before both
  bool fitting = false;                        // whether fit() is running, which agrees on failures
  bool trusts_archives = false;                // whether to read libtorch's archives of a checkpoint
  bool paused = false;                         // whether other work has followed the last step

  PreparedModel& prepared() const { return training->prepared(); }
};

// Implements Trainer::evaluate(). Returns nullopt if options.stop_requested ended it. Collective.
std::optional<std::map<std::string, double>> evaluate_until_stopped(TrainerState& state, const Dataset& data,
                                                                    const EvaluateOptions& options);

}  // namespace rondo
