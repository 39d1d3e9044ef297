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
// JSON encoding. Metrics are those of the rows that observer() is given, which hold figures of all ranks.
// Spans are the run, its epochs, validations and checkpoints. Sending happens on a thread of its own, with
// bounded memory: a collector that is slow, refuses or is gone neither slows nor ends the training.
// The environment variables of OpenTelemetry's specification are read (docs/observability.md).
class OtlpLog final : public Callback {
 public:
  // Destination, interval and content.
  struct Options {
    std::string endpoint = {};  // "http://host:4318"; empty: as the environment says, else this host's
    // Time between metrics; zero: as the environment says, else a minute.
    std::chrono::nanoseconds interval = std::chrono::nanoseconds::zero();
    bool step_spans = false;                                         // a span for every step
    std::string run_name = {};                                       // the resource attribute rondo.run.name
    std::chrono::nanoseconds flush_limit = std::chrono::seconds(5);  // longest time of the destructor
  };
  // Reads the environment. Throws UsageError for a variable or an endpoint that cannot be read.
  explicit OtlpLog(Options options);
  // Sends what is left: for at most Options::flush_limit, and a second where training ended by an exception.
  ~OtlpLog() override;

  // The function for MetricsLog::Options::observers, which may outlive this object.
  std::function<void(std::span<const MetricsRow>)> observer() const;

  std::string name() const override { return "otlp_log"; }
  // Throws Error on rank 0 where libcurl cannot be loaded.
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
  std::shared_ptr<State> state_;  // observer() shares it
};

}  // namespace rondo
