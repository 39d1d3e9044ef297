#include "apps/train/served_training.h"

#include "rondo/parallel/server/server_strategy.h"

namespace rondo {

nlohmann::ordered_json served_summary(const Strategy& strategy) {
  const auto* const served = dynamic_cast<const ServerStrategy*>(&strategy);
  if (served == nullptr) return nullptr;
  const server::ServerFigures figures = served->figures();
  nlohmann::ordered_json workers = nlohmann::ordered_json::array();
  std::uint64_t steps = 0, lost = 0;
  for (const server::WorkerFigures& worker : figures.workers) {
    const char* const phases[] = {"absent", "training", "finished", "lost", "finished"};
    steps += worker.clock;
    lost += worker.lost_steps;
    workers.push_back({{"phase", phases[static_cast<std::size_t>(worker.phase)]},
                       {"steps", worker.clock},
                       {"lost_steps", worker.lost_steps},
                       {"refused_updates", worker.refused},
                       {"late_steps", worker.late},
                       {"returns", worker.returns}});
  }
  return {
      {"steps", steps}, {"lost_steps", lost}, {"recovered_updates", figures.recovered}, {"workers", workers}};
}

}  // namespace rondo
