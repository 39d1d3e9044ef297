#include <algorithm>
#include <cmath>
#include <limits>

#include "rondo/plan/baselines/baselines.h"

namespace rondo::plan {

// OSDP (Jiang et al., "OSDP: Optimal Sharded Data Parallel for Distributed Deep Learning", IJCAI 2023): each
// unit adds its own time and its own memory, nothing overlaps, and dynamic programming finds the least sum of
// times whose sum of memory fits. Memory is counted in 1024 steps of the limit. What is alive in one slot
// only (workspace, a gathered unit, a gradient) is put aside beforehand, at its largest.
Baseline additive_dp(const cost::StepModel& model, std::uint64_t memory_limit) {
  constexpr int kSteps = 1024;
  Baseline best;
  // Put aside for passing needs: first as much as the largest units need, then more if the result did not
  // fit.
  for (const double share : {1.0, 1.5, 2.0, 3.0}) {
    double passing = 0;
    for (const cost::UnitProfile& u : model.profile.units) {
      passing = std::max(passing, static_cast<double>(u.backward_workspace_bytes) +
                                      static_cast<double>(2 * u.parameter_bytes + 2 * u.gradient_bytes));
    }
    const double available =
        static_cast<double>(memory_limit) - static_cast<double>(model.profile.base_bytes) - share * passing;
    const double step = std::max(1.0, available / kSteps);
    constexpr double kNever = std::numeric_limits<double>::infinity();
    std::vector<double> time(kSteps + 1, 0);
    std::vector<std::vector<int>> taken;
    for (int unit = 0; unit < model.units(); ++unit) {
      std::vector<double> next(kSteps + 1, kNever);
      std::vector<int> choice(kSteps + 1, -1);
      const auto& choices = model.choices[static_cast<std::size_t>(unit)];
      const cost::UnitProfile& profile = model.profile.units[static_cast<std::size_t>(unit)];
      for (std::size_t c = 0; c < choices.size(); ++c) {
        const auto& option = choices[c];
        const bool keeps = option.choice.strategy == cost::Strategy::zero3_keep;
        const double bytes = static_cast<double>(option.persistent_bytes + option.held_bytes +
                                                 (keeps ? profile.parameter_bytes : 0));
        const int weight = static_cast<int>(std::min(1e9, std::ceil(bytes / step)));
        const double seconds =
            option.communication_s + model.slots.micro_batches * option.backward_s + option.optimizer_s;
        for (int m = weight; m <= kSteps; ++m) {
          const double total = time[static_cast<std::size_t>(m - weight)] + seconds;
          if (total >= next[static_cast<std::size_t>(m)]) continue;
          next[static_cast<std::size_t>(m)] = total;
          choice[static_cast<std::size_t>(m)] = static_cast<int>(c);
        }
      }
      time = std::move(next);
      taken.push_back(std::move(choice));
    }
    std::vector<cost::UnitChoice> chosen(static_cast<std::size_t>(model.units()));
    int m = kSteps;
    for (int unit = model.units() - 1; unit >= 0; --unit) {
      const auto u = static_cast<std::size_t>(unit);
      const int c = m < 0 ? -1 : taken[u][static_cast<std::size_t>(m)];
      if (c < 0) {
        m = -1;
        chosen[u] = simulate::nearest_choice(model, unit, {cost::Strategy::zero3, true});
        continue;
      }
      const auto& option = model.choices[u][static_cast<std::size_t>(c)];
      chosen[u] = option.choice;
      const bool keeps = option.choice.strategy == cost::Strategy::zero3_keep;
      m -= static_cast<int>(
          std::ceil(static_cast<double>(option.persistent_bytes + option.held_bytes +
                                        (keeps ? model.profile.units[u].parameter_bytes : 0)) /
                    step));
    }
    Baseline candidate{"additive_dp", prefetch_schedule(model, chosen, 1), {}};
    candidate.result = simulate::simulate_step(model, candidate.plan, memory_limit);
    if (best.plan.choices.empty() || is_better(candidate.result, best.result)) best = std::move(candidate);
    if (best.result.fits) break;
  }
  return best;
}

}  // namespace rondo::plan
