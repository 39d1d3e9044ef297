#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "rondo/format/metrics_row.h"
#include "rondo/train/callback.h"

namespace rondo {

// Sends metrics and traces of a training to an OpenTelemetry collector, from rank 0, by OTLP over HTTP in its
// JSON encoding. Metrics come from the rows passed to observer(), which have values of all ranks. Spans are
// the run, its epochs, validations and checkpoints. A separate thread sends them with bounded memory, so a
// collector that is slow, unavailable or rejects data neither slows nor ends the training. Reads the
// environment variables of OpenTelemetry's specification (docs/observability.md).
class OtlpLog final : public Callback {
 public:
  // Destination, interval and contents.
  struct Options {
    std::string endpoint = {};  // "http://host:4318"; empty: from the environment, else this host
    // Time between metrics. Zero: from the environment, else one minute.
    std::chrono::nanoseconds interval = std::chrono::nanoseconds::zero();
    bool step_spans = false;    // whether every step has a span
    std::string run_name = {};  // value of the resource attribute rondo.run.name
    std::chrono::nanoseconds flush_limit = std::chrono::seconds(5);  // maximum duration of the destructor
  };
  // Reads the environment. Throws UsageError for an invalid variable or endpoint.
  explicit OtlpLog(Options options);
  // Sends the remaining data: for at most Options::flush_limit, or one second if an exception ended training.
  ~OtlpLog() override;

  // Returns the function for MetricsLog::Options::observers, which may outlive this object.
  std::function<void(std::span<const MetricsRow>)> observer() const;

  std::string name() const override { return "otlp_log"; }
  // Throws Error on rank 0 if libcurl cannot be loaded.
  void on_train_begin(Trainer& trainer, const FitOutline& outline) override;
  void on_epoch_begin(Trainer& trainer, std::int64_t epoch) override;
  void on_step_begin(Trainer& trainer, std::int64_t step) override;
  void on_step_end(Trainer& trainer, const StepRecord& record) override;
  void on_epoch_end(Trainer& trainer, const EpochRecord& record) override;
  void on_validation_begin(Trainer& trainer) override;
  void on_validation_end(Trainer& trainer, const ValidationRecord& record) override;
  void before_save(Trainer& trainer) override;
  void after_save(Trainer& trainer, const std::filesystem::path& root) override;
  void on_train_end(Trainer& trainer, const FitResult& result) override;
  void on_exception(Trainer& trainer, const std::exception& error) noexcept override;

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with observer()
};

}  // namespace rondo
