#include "rondo/train/callbacks/prediction_report.h"

#include <algorithm>

#include "rondo/backend/collectives.h"
#include "rondo/base/arithmetic.h"
#include "rondo/format/file.h"
#include "rondo/memory/tracker.h"
#include "rondo/nn/unit_state.h"
#include "rondo/train/callbacks/side_output.h"
#include "rondo/train/trainer.h"

namespace rondo {
namespace {

using nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

// Returns the median without the first few steps, which touch memory for the first time.
double settled_median(const std::vector<double>& values) {
  if (values.empty()) return 0;
  const auto skipped = static_cast<std::ptrdiff_t>(std::min<std::size_t>(3, (values.size() - 1) / 2));
  return median({values.begin() + skipped, values.end()});
}

// Returns the largest of the ranks' values of `key`.
double largest(const std::vector<json>& of_ranks, const char* key) {
  double most = 0;
  for (const json& rank : of_ranks) most = std::max(most, rank.value(key, 0.0));
  return most;
}

}  // namespace

void PredictionReport::attach(Trainer& trainer) {
  for (UnitState* unit : units_of(*trainer.model().module)) {
    unit->attach(spans_);
    unit->attach(peaks_);
  }
}

void PredictionReport::detach(Trainer& trainer) {
  for (UnitState* unit : units_of(*trainer.model().module)) {
    unit->detach(peaks_);
    unit->detach(spans_);
  }
}

void PredictionReport::on_train_begin(Trainer& trainer, const FitOutline&) { attach(trainer); }

void PredictionReport::on_step_end(Trainer& trainer, const StepRecord& record) {
  step_ms_.push_back(record.times.step_ms);
  std::map<std::string, double> exposed_ms;
  for (const Prediction::Unit& unit : prediction_.units) exposed_ms[unit.name] = 0;
  double all_ms = 0;
  for (const TraceSpan& span : trainer.communication_spans()) {
    const double waited_ms = static_cast<double>(span.exposed_ns.value_or(0)) * 1e-6;
    exposed_ms[span.unit] += waited_ms;
    all_ms += waited_ms;
  }
  exposed_comm_ms_.push_back(all_ms);
  for (const auto& [unit, waited_ms] : exposed_ms) unit_exposed_comm_ms_[unit].push_back(waited_ms);
  times_.add_step(spans_->take());
  if (!only_trained_) return;
  peak_bytes_ = replica_memory_tracker().peak_total();
  unit_peak_bytes_ = peaks_->bytes();
}

void PredictionReport::on_epoch_end(Trainer&, const EpochRecord&) { only_trained_ = false; }

void PredictionReport::on_validation_end(Trainer&, const ValidationRecord&) {
  only_trained_ = false;
  spans_->take();  // spans outside steps
}

void PredictionReport::before_save(Trainer&) { only_trained_ = false; }

json PredictionReport::measured() const {
  json units = json::object();
  for (const auto& [name, exposed_ms] : unit_exposed_comm_ms_)
    units[name]["exposed_comm_ms"] = settled_median(exposed_ms);
  for (const auto& [name, bytes] : unit_peak_bytes_) units[name]["peak_bytes"] = bytes;
  for (const auto& [name, times] : times_.times()) {
    units[name]["forward_ms"] = settled_median(times.forward_s) * 1e3;
    units[name]["backward_ms"] = settled_median(times.backward_s) * 1e3;
  }
  return {{"step_ms", settled_median(step_ms_)},
          {"exposed_comm_ms", settled_median(exposed_comm_ms_)},
          {"peak_bytes", peak_bytes_},
          {"units", std::move(units)}};
}

void PredictionReport::on_train_end(Trainer& trainer, const FitResult&) {
  detach(trainer);
  const Context& context = trainer.strategy().context();
  const std::vector<json> of_ranks = gather_object(measured(), context.world());
  if (context.rank() != 0 || step_ms_.empty()) return;
  OrderedJson units = OrderedJson::array();
  for (const Prediction::Unit& unit : prediction_.units) {
    OrderedJson entry{
        {"name", unit.name},
        {"choice", unit.choice},
        {"predicted", {{"exposed_comm_ms", unit.exposed_comm_ms}, {"peak_bytes", unit.peak_bytes}}}};
    if (unit.forward_ms) entry["predicted"]["forward_ms"] = *unit.forward_ms;
    if (unit.backward_ms) entry["predicted"]["backward_ms"] = *unit.backward_ms;
    std::vector<json> of_unit;
    for (const json& rank : of_ranks) {
      if (rank["units"].contains(unit.name)) of_unit.push_back(rank["units"][unit.name]);
    }
    for (const char* key : {"exposed_comm_ms", "peak_bytes", "forward_ms", "backward_ms"}) {
      const bool is_known =
          std::any_of(of_unit.begin(), of_unit.end(), [&](const json& rank) { return rank.contains(key); });
      if (is_known) entry["measured"][key] = largest(of_unit, key);
    }
    units.push_back(std::move(entry));
  }
  result_ = {{"predicted",
              {{"step_ms", prediction_.step_ms},
               {"exposed_comm_ms", prediction_.exposed_comm_ms},
               {"peak_bytes", prediction_.peak_bytes}}},
             {"measured",
              {{"step_ms", largest(of_ranks, "step_ms")},
               {"exposed_comm_ms", largest(of_ranks, "exposed_comm_ms")},
               {"peak_bytes", static_cast<std::uint64_t>(largest(of_ranks, "peak_bytes"))}}},
             {"units", std::move(units)}};
  const std::filesystem::path file = run_directory_ / "prediction.json";
  SideOutput(file).write([&] { replace_text_file(file, result_.dump(1) + "\n"); });
}

}  // namespace rondo
