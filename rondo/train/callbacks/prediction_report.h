#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rondo/observe/unit_profiler.h"
#include "rondo/train/callback.h"

namespace rondo {

// A plan's prediction for training.
struct Prediction {
  double step_ms = 0;
  double exposed_comm_ms = 0;  // time in which computation waits for blocks
  std::uint64_t peak_bytes = 0;
  struct Unit {
    std::string name = {};
    std::string choice = {};       // "zero3 + checkpoint"
    double exposed_comm_ms = 0;    // for blocks of this unit
    std::uint64_t peak_bytes = 0;  // total, while the unit computes
    // Sum over all passes of a step; empty if the plan was made without a profile.
    std::optional<double> forward_ms = {};
    std::optional<double> backward_ms = {};
  };
  std::vector<Unit> units = {};
};

// A callback that compares measurements with a plan's prediction: step time, exposed communication and peak
// memory of the step and of every unit, and the units' forward and backward times. On both sides exposed
// communication is the time in which the computing thread waits for blocks, counted for the block's unit.
// Writes prediction.json when training ends. Times are medians without the first few steps, of the slowest
// rank; peaks are the largest rank's, before the first validation or checkpoint.
class PredictionReport final : public Callback {
 public:
  PredictionReport(std::filesystem::path run_directory, Prediction prediction)
      : run_directory_(std::move(run_directory)), prediction_(std::move(prediction)) {}

  std::string name() const override { return "prediction_report"; }
  void on_train_begin(Trainer& trainer, const FitOutline& outline) override;
  void on_step_end(Trainer& trainer, const StepRecord& record) override;
  void on_epoch_end(Trainer& trainer, const EpochRecord& record) override;
  void on_validation_end(Trainer& trainer, const ValidationRecord& record) override;
  void before_save(Trainer& trainer) override;
  void on_train_end(Trainer& trainer, const FitResult& result) override;

  // Returns {predicted: {step_ms, exposed_comm_ms, peak_bytes}, measured: {...}, units: [{name, choice,
  // predicted: {exposed_comm_ms, peak_bytes, forward_ms, backward_ms}, measured: {...}}]}, on rank 0 after
  // training; null before and elsewhere. A plan without a profile predicts no times of units. Parts outside
  // all units have no measured times and no measured peak.
  const nlohmann::ordered_json& result() const { return result_; }

 private:
  nlohmann::json measured() const;
  void attach(Trainer& trainer);
  void detach(Trainer& trainer);

  std::filesystem::path run_directory_;
  Prediction prediction_;
  std::shared_ptr<UnitSpans> spans_ = std::make_shared<UnitSpans>();
  UnitTimes times_;
  std::shared_ptr<UnitPeaks> peaks_ = std::make_shared<UnitPeaks>(replica_memory_tracker());
  std::map<std::string, std::uint64_t> unit_peak_bytes_;
  std::vector<double> step_ms_;
  std::vector<double> exposed_comm_ms_;
  std::map<std::string, std::vector<double>> unit_exposed_comm_ms_;
  std::uint64_t peak_bytes_ = 0;
  bool only_trained_ = true;  // whether only training steps have run so far
  nlohmann::ordered_json result_;
};

}  // namespace rondo
