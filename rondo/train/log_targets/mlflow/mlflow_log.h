#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "rondo/format/metrics_export.h"
#include "rondo/train/callback.h"
#include "rondo/train/callbacks/side_output.h"

namespace rondo {

// Writes a run into MLflow's folders (rondo/format/metrics_export.h) on rank 0: parameters, and metrics of
// steps and validations. A resumed training continues its run.
class MlflowLog final : public Callback {
 public:
  // Location and contents.
  struct Options {
    std::filesystem::path directory = {};                // such as "mlruns"; may contain many runs
    std::string run_name = {};                           // name of the run in MLflow
    std::map<std::string, std::string> parameters = {};  // by name
    std::int64_t every_steps = 10;                       // steps between metrics
  };
  // Files are created when training begins.
  explicit MlflowLog(Options options) : options_(std::move(options)) {}

  std::string name() const override { return "mlflow_log"; }
  void on_train_begin(Trainer& trainer, const FitOutline& outline) override;
  void on_step_end(Trainer& trainer, const StepRecord& record) override;
  void on_validation_end(Trainer& trainer, const ValidationRecord& record) override;
  void on_train_end(Trainer& trainer, const FitResult& result) override;
  void on_exception(Trainer& trainer, const std::exception& error) noexcept override;
  nlohmann::json state() const override;
  void restore(const nlohmann::json& state) override;

 private:
  Options options_;
  std::string run_id_;  // id of the resumed or current run
  std::string unit_;
  std::int64_t total_steps_ = 0;
  std::optional<MlflowRun> run_;      // on rank 0
  std::optional<SideOutput> output_;  // its folder
};

}  // namespace rondo
