#include "rondo/train/callbacks/run_record.h"

#include <utility>

#include "rondo/backend/collectives.h"
#include "rondo/format/file.h"
#include "rondo/format/run_directory.h"
#include "rondo/train/callbacks/side_output.h"
#include "rondo/train/trainer.h"

namespace rondo {

void RunRecord::on_train_begin(Trainer& trainer, const FitOutline& outline) {
  const Context& context = trainer.strategy().context();
  if (context.rank() != 0) return;
  RunStart start = start_;
  start.strategy = std::string(trainer.strategy().name());
  start.backend = std::string(context.backend_name());
  start.ranks = context.world_size();
  start.first_step = outline.first_step;
  start.total_steps = outline.total_steps;
  add_run_start(run_directory_ / "run.json", start, labels_);
}

namespace {

nlohmann::json to_json(const BytesByCategory& bytes) {
  nlohmann::json object = nlohmann::json::object();
  for (std::size_t i = 0; i < kMemoryCategories; ++i) {
    object[std::string(to_string(static_cast<MemoryCategory>(i)))] = bytes[i];
  }
  return object;
}

}  // namespace

nlohmann::json to_json(const MemoryPeak& peak) {
  nlohmann::json units = nlohmann::json::array();
  for (const MemoryUsage::Unit& unit : peak.usage.units) {
    units.push_back({{"name", unit.name}, {"categories", to_json(unit.categories)}});
  }
  return {{"peak_bytes", peak.usage.total},
          {"step", peak.step},
          {"phase", peak.phase},
          {"unit", peak.unit},
          {"categories", to_json(peak.usage.categories)},
          {"units", std::move(units)}};
}

void MemoryReport::on_train_end(Trainer& trainer, const FitResult&) {
  if (!std::exchange(has_stepped_, false)) return;
  const Context& context = trainer.strategy().context();
  nlohmann::json mine = to_json(replica_memory_tracker().peak());
  mine["rank"] = context.rank();
  if (const auto replicas = trainer.replica_peak_bytes(); !replicas.empty())
    mine["replica_peak_bytes"] = replicas;
  const std::vector<nlohmann::json> of_ranks = gather_object(mine, context.world());
  if (context.rank() != 0) return;
  const std::filesystem::path file = run_directory_ / "memory.json";
  SideOutput(file).write([&] {
    replace_text_file(file, nlohmann::json{{"ranks", of_ranks}}.dump(1) + "\n");
  });
}

}  // namespace rondo
