#include "rondo/train/log_targets/otlp/otlp_log.h"

#include <unistd.h>

#include <optional>
#include <utility>

#include "rondo/base/process.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"
#include "rondo/base/version.h"
#include "rondo/env/environment.h"
#include "rondo/options/option_table.h"
#include "rondo/train/log_targets/otlp/otlp_exporter.h"
#include "rondo/train/log_targets/otlp/otlp_settings.h"
#include "rondo/train/log_targets/otlp/otlp_target.h"
#include "rondo/train/trainer.h"

namespace rondo {
namespace {

constexpr Duration kLimitAfterFailure = std::chrono::seconds(1);

const char* end_text(FitEnd end) {
  switch (end) {
    case FitEnd::finished:
      return "finished";
    case FitEnd::early:
      return "early";
    case FitEnd::preempted:
      return "preempted";
  }
  return "";
}

std::string instance_id() { return str(std::hex, otlp::new_span_id(), otlp::new_span_id()); }

// Returns the resource attributes of this process; those of the environment take precedence.
otlp::Attributes resource_of(const Trainer& trainer, const std::string& run_name, otlp::Attributes given) {
  const Context& context = trainer.strategy().context();
  otlp::Attributes resource = {{"service.name", "rondo"},
                               {"service.version", kVersion},
                               {"service.instance.id", instance_id()},
                               {"host.name", host_name()},
                               {"process.pid", static_cast<std::int64_t>(::getpid())},
                               {"telemetry.sdk.name", "rondo"},
                               {"telemetry.sdk.language", "cpp"},
                               {"telemetry.sdk.version", kVersion},
                               {"rondo.version", kVersion},
                               {"rondo.rank", static_cast<std::int64_t>(context.rank())},
                               {"rondo.world_size", static_cast<std::int64_t>(context.world_size())},
                               {"rondo.strategy", trainer.strategy().name()}};
  if (!trainer.model().name.empty()) resource.emplace_back("rondo.model", trainer.model().name);
  if (!run_name.empty()) resource.emplace_back("rondo.run.name", run_name);
  for (auto& attribute : given) {
    std::erase_if(resource, [&](const auto& each) { return each.first == attribute.first; });
    resource.push_back(std::move(attribute));
  }
  return resource;
}

}  // namespace

struct OtlpLog::State {
  Options options;
  OtlpSettings settings;
  std::optional<OtlpExporter> exporter;  // on rank 0, from the start of training
  otlp::Span run;
  std::optional<otlp::Span> epoch, step, validation, checkpoint;  // spans in progress
  std::optional<std::int64_t> first_step;
  bool failed = false;

  void begin(std::optional<otlp::Span>& span, const char* name, std::int64_t steps_done) {
    if (!exporter) return;
    const std::uint64_t parent = epoch && &span != &epoch ? epoch->id : run.id;
    span.emplace(otlp::Span{.trace = run.trace,
                            .id = otlp::new_span_id(),
                            .parent = parent,
                            .name = name,
                            .begin = otlp::now(),
                            .attributes = {{"rondo.step", steps_done}}});
  }

  // Ends a span, if it is in progress, and the spans inside it.
  void end(std::optional<otlp::Span>& span, otlp::Attributes attributes = {}) {
    if (!span) return;
    span->end = otlp::now();
    for (auto& attribute : attributes) span->attributes.push_back(std::move(attribute));
    exporter->add(*std::exchange(span, std::nullopt));
  }

  // Ends a span without an end event: the validation was interrupted, or the checkpoint was not written.
  void break_off(std::optional<otlp::Span>& span, const std::string& reason) {
    if (!span) return;
    span->failed = true;
    span->error = reason;
    end(span);
  }

  // Ends every span.
  void end_run(const std::string& reason) {
    if (!exporter || run.id == 0) return;
    break_off(step, reason);
    break_off(validation, reason);
    break_off(checkpoint, reason);
    end(epoch);
    run.end = otlp::now();
    exporter->add(std::exchange(run, {}));
  }
};

OtlpLog::OtlpLog(Options options) : state_(std::make_shared<State>()) {
  state_->settings = read_otlp_settings(env::process_environment(), options.endpoint);
  if (options.interval > std::chrono::nanoseconds::zero()) state_->settings.interval = options.interval;
  state_->options = std::move(options);
}

OtlpLog::~OtlpLog() {
  if (!state_->exporter) return;
  state_->end_run("the training ended");
  state_->exporter->finish(state_->failed ? kLimitAfterFailure : state_->options.flush_limit);
}

std::function<void(std::span<const MetricsRow>)> OtlpLog::observer() const {
  return [state = state_](std::span<const MetricsRow> rows) {
    if (state->exporter) state->exporter->add(rows);
  };
}

void OtlpLog::on_train_begin(Trainer& trainer, const FitOutline& outline) {
  State& state = *state_;
  if (trainer.strategy().context().rank() != 0) return;
  state.end_run("another training began");
  if (!state.exporter) {
    state.exporter.emplace(state.settings,
                           resource_of(trainer, state.options.run_name, std::move(state.settings.resource)));
  }
  state.run = {
      .trace = otlp::new_trace_id(),
      .id = otlp::new_span_id(),
      .name = "train",
      .begin = otlp::now(),
      .attributes = {{"rondo.first_step", outline.first_step}, {"rondo.total_steps", outline.total_steps}}};
}

void OtlpLog::on_epoch_begin(Trainer& trainer, std::int64_t epoch) {
  state_->begin(state_->epoch, "epoch", trainer.position().step);
  if (state_->epoch) state_->epoch->attributes.emplace_back("rondo.epoch", epoch);
}

void OtlpLog::on_step_begin(Trainer&, std::int64_t step) {
  if (state_->options.step_spans) state_->begin(state_->step, "step", step);
}

void OtlpLog::on_step_end(Trainer&, const StepRecord& record) {
  if (!state_->step) return;
  state_->end(state_->step, {{"rondo.loss", record.loss},
                             {"rondo.samples", record.samples},
                             {"rondo.compute_ms", record.times.compute_ms},
                             {"rondo.exposed_comm_ms", record.times.exposed_comm_ms}});
}

void OtlpLog::on_epoch_end(Trainer&, const EpochRecord& record) {
  state_->end(state_->epoch, {{"rondo.loss", record.loss},
                              {"rondo.learning_rate", record.learning_rate},
                              {"rondo.samples", record.samples}});
}

void OtlpLog::on_validation_begin(Trainer& trainer) {
  state_->break_off(state_->validation, "interrupted");
  state_->begin(state_->validation, "validation", trainer.position().step);
}

void OtlpLog::on_validation_end(Trainer&, const ValidationRecord& record) {
  if (!state_->validation) return;
  otlp::Attributes values;
  for (const auto& [metric, value] : record.values) values.emplace_back("rondo.validation." + metric, value);
  state_->end(state_->validation, std::move(values));
}

void OtlpLog::before_save(Trainer& trainer) {
  state_->break_off(state_->checkpoint, "not written");
  state_->begin(state_->checkpoint, "checkpoint", trainer.position().step);
}

void OtlpLog::after_save(Trainer&, const std::filesystem::path& root) {
  if (state_->checkpoint) state_->end(state_->checkpoint, {{"rondo.checkpoint.path", root.string()}});
}

void OtlpLog::on_train_end(Trainer&, const FitResult& result) {
  State& state = *state_;
  if (!state.exporter) return;
  state.run.attributes.emplace_back("rondo.end", end_text(result.end));
  state.run.attributes.emplace_back("rondo.step", result.step);
}

void OtlpLog::on_exception(Trainer&, const std::exception& error) noexcept {
  State& state = *state_;
  if (!state.exporter) return;
  try {
    state.failed = true;
    state.run.failed = true;
    state.run.error = error.what();
    state.run.events.push_back(
        {.name = "exception",
         .time = otlp::now(),
         .attributes = {{"exception.type", type_name(typeid(error))}, {"exception.message", error.what()}}});
    state.end_run("the training failed");
    state.exporter->begin_finish(kLimitAfterFailure);
  } catch (const std::exception&) {
    // Reports only the first failure.
  }
}

LogTarget OtlpTarget::make(const Options& options, const LoggedRun& run) {
  OtlpLog::Options of_log{
      .endpoint = options.endpoint, .step_spans = options.step_spans, .run_name = run.name};
  if (!options.interval.empty()) of_log.interval = parse_duration(options.interval, "otlp-interval");
  const auto log = std::make_shared<OtlpLog>(std::move(of_log));
  return {.callback = log, .observer = log->observer()};
}

}  // namespace rondo
