#include "rondo/train/log_targets/mlflow/mlflow_log.h"

#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/printable.h"
#include "rondo/base/text.h"
#include "rondo/train/log_targets/mlflow/mlflow_target.h"
#include "rondo/train/trainer.h"

namespace rondo {
namespace {

constexpr std::size_t kRunIdDigits = 32;

}  // namespace

void MlflowLog::on_train_begin(Trainer& trainer, const FitOutline& outline) {
  unit_ = outline.unit;
  total_steps_ = outline.total_steps;
  if (trainer.strategy().context().rank() != 0) return;
  run_.emplace(options_.directory, run_id_, options_.run_name, outline.first_step);
  run_id_ = run_->id();
  output_.emplace(run_->path());
  run_->set_parameters(options_.parameters);
}

void MlflowLog::on_step_end(Trainer&, const StepRecord& record) {
  if (!run_ || (record.step % options_.every_steps != 0 && record.step != total_steps_)) return;
  const std::int64_t now = mlflow_time();
  const auto log = [&](const std::string& metric, double value) {
    run_->log_metric(metric, value, record.step, now);
  };
  output_->write([&] {
    log("loss", record.loss);
    log("learning_rate", record.learning_rate);
    log(unit_ + "_per_s", record.rate);
    log("step_ms", record.times.step_ms);
    if (record.gradient_norm) log("gradient_norm", *record.gradient_norm);
  });
}

void MlflowLog::on_validation_end(Trainer&, const ValidationRecord& record) {
  if (!run_) return;
  const std::int64_t now = mlflow_time();
  output_->write([&] {
    for (const auto& [metric, value] : record.values)
      run_->log_metric("validation_" + metric, value, record.step, now);
  });
}

void MlflowLog::on_train_end(Trainer&, const FitResult& result) {
  if (!run_) return;
  output_->write([&] {
    run_->set_status(result.end == FitEnd::preempted ? MlflowRun::Status::killed
                                                     : MlflowRun::Status::finished);
  });
}

void MlflowLog::on_exception(Trainer&, const std::exception&) noexcept {
  try {
    if (run_) run_->set_status(MlflowRun::Status::failed);
  } catch (const std::exception&) {
    // Only the first failure is reported.
  }
}

nlohmann::json MlflowLog::state() const {
  return run_id_.empty() ? nlohmann::json() : nlohmann::json(run_id_);
}

// A rank that writes nothing has null. The id is checked because it becomes the name of a folder.
void MlflowLog::restore(const nlohmann::json& state) {
  if (state.is_null()) return;
  const std::string id = json_text(state, "the run's id");
  if (id.size() != kRunIdDigits || id.find_first_not_of("0123456789abcdef") != std::string::npos) {
    throw DataError(str("the run's id '", printable(id), "' is not ", kRunIdDigits,
                        " hexadecimal digits in small letters"));
  }
  run_id_ = id;
}

LogTarget MlflowTarget::make(const Options& options, const LoggedRun& run) {
  return {.callback = std::make_shared<MlflowLog>(MlflowLog::Options{
              .directory = options.directory.empty() ? run.directory / "mlruns"
                                                     : std::filesystem::path(options.directory),
              .run_name = run.name,
              .parameters = run.parameters,
              .every_steps = run.every_steps})};
}

}  // namespace rondo
