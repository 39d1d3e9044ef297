#include "rondo/plan/explain.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "rondo/base/bytes.h"
#include "rondo/base/text.h"
#include "rondo/plan/schedule/schedules.h"

namespace rondo::plan {
namespace {

// Simulated steps that differ by less are equal up to rounding.
constexpr double kNoticeable_s = 1e-6;

std::string milliseconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g ms", seconds * 1e3);
  return text;
}

// Describes the effect of the nearest other choices on the whole step, as the simulator predicts it.
std::string reason(const cost::StepModel& model, const PlanResult& answer, int unit, std::uint64_t limit,
                   const Wait& wait) {
  const cost::UnitChoice now = answer.plan.choices[index(unit)];
  const cost::ChoiceCost* best = nullptr;  // the fastest other choice that does not fit
  simulate::StepResult best_result;
  double nearest = kUnbounded;  // the fastest other choice that fits
  const cost::ChoiceCost* slower = nullptr;
  for (const cost::ChoiceCost& c : model.choices[index(unit)]) {
    if (c.choice == now) continue;
    if (has_ended(wait)) return "not compared with other choices: out of time";
    std::vector<cost::UnitChoice> choices = answer.plan.choices;
    choices[index(unit)] = c.choice;
    const Scheduled other = best_list_schedule(model, choices, limit);
    if (other.result.fits) {
      if (other.result.step_s < nearest) {
        nearest = other.result.step_s;
        slower = &c;
      }
      continue;
    }
    const simulate::StepResult free = best_list_schedule(model, choices, UINT64_MAX).result;
    if (answer.result.step_s - free.step_s > kNoticeable_s &&
        (best == nullptr || free.peak_bytes < best_result.peak_bytes)) {
      best = &c;
      best_result = free;
    }
  }
  std::string text;
  if (best != nullptr) {
    text = str(describe(best->choice), " would save ",
               milliseconds_text(answer.result.step_s - best_result.step_s), ", but needs ",
               to_string(Bytes{best_result.peak_bytes - std::min(limit, best_result.peak_bytes)}),
               " more than the limit");
  }
  if (slower != nullptr) {
    const double lost = nearest - answer.result.step_s;
    text += str(text.empty() ? "" : "; ", describe(slower->choice),
                lost > kNoticeable_s ? str(" fits and costs ", milliseconds_text(lost), " more")
                                     : std::string(" is equally fast"));
  }
  return text.empty() ? "no other choice fits" : text;
}

std::string what_needs_the_least(const cost::StepModel& model, const PlanResult& answer) {
  simulate::Timeline timeline;
  simulate::simulate_step(model, answer.floor.plan, 0, &timeline);
  const simulate::MemoryParts& m = timeline.slots[index(answer.floor.slot)].memory;
  return str(slot_name(model, answer.floor.slot),
             " needs it even when everything is sharded as far as it pays: ", to_string(Bytes{m.persistent}),
             " stay, ", to_string(Bytes{m.activations}), " activations, ", to_string(Bytes{m.workspace}),
             " workspace, ", to_string(Bytes{m.gathered}), " gathered parameters, ",
             to_string(Bytes{m.gradients}),
             " gradients. More ranks, a smaller batch or smaller units need less");
}

std::string what_binds(const cost::StepModel& model, const PlanResult& answer, std::uint64_t limit) {
  const double lost = answer.result.step_s - answer.result.compute_s;
  const double exposed = lost / std::max(answer.result.step_s, 1e-12);
  if (exposed < 1e-3) return "compute: all communication is hidden, so more memory would not help";
  const double slack = static_cast<double>(limit - std::min(limit, answer.result.peak_bytes));
  std::string share = str("communication is exposed for ", milliseconds_text(answer.result.exposed_s));
  if (answer.result.slowed_s > 1e-6)
    share += str(" and slows computing down by ", milliseconds_text(answer.result.slowed_s));
  if (slack > 0.1 * static_cast<double>(limit) && answer.seconds_per_byte > -1e-15)
    return str("the link: ", share, ", and more memory would not hide it");
  return str("memory in ", slot_name(model, answer.result.peak_slot), " (",
             to_string(Bytes{answer.result.peak_bytes}), " of ", to_string(Bytes{limit}), "): ", share);
}

}  // namespace

std::string slot_name(const cost::StepModel& model, int slot) {
  const cost::Slots& slots = model.slots;
  if (slot == cost::Slots::update()) return "optimizer";
  if (slot == slots.epilogue()) return "epilogue";
  if (slot == slots.end()) return "end";
  const std::string pass =
      slots.micro_batches > 1 ? str(" in micro-batch ", slots.micro_batch(slot)) : std::string();
  return str(slots.is_forward(slot) ? "forward" : "backward", " of ",
             model.profile.units[index(slots.unit(slot))].name, pass);
}

Explanation explain(const cost::StepModel& model, const PlanResult& answer, std::uint64_t memory_limit,
                    const Wait& wait) {
  Explanation explanation;
  if (!answer.feasible) {
    const std::uint64_t least = answer.floor.bytes;
    explanation.need = what_needs_the_least(model, answer);
    explanation.binding =
        str("the smallest feasible limit is ", to_string(Bytes{least}), " (", least, " bytes), ",
            to_string(Bytes{least - std::min(least, memory_limit)}), " more than given; ", explanation.need);
    explanation.reasons.assign(index(model.units()), "part of the plan with the least memory");
    return explanation;
  }
  for (int unit = 0; unit < model.units(); ++unit)
    explanation.reasons.push_back(reason(model, answer, unit, memory_limit, wait));
  explanation.binding = what_binds(model, answer, memory_limit);
  explanation.one_more_gib_saves_s = std::min(-answer.seconds_per_byte * static_cast<double>(GiB(1).count),
                                              answer.result.step_s - answer.result.compute_s);
  explanation.one_more_gib_saves_s = std::max(0.0, explanation.one_more_gib_saves_s);
  return explanation;
}

std::vector<SweepPoint> sweep(const cost::StepModel& model, PlannerOptions options, int points) {
  const double low =
      static_cast<double>(memory_floor(model, {Deadline::after(options.time_limit), options.cancel}).bytes);
  const double high = static_cast<double>(memory_ceiling(model));
  options.time_limit /= std::max(points, 1);
  std::vector<SweepPoint> result;
  for (int i = 0; i < points; ++i) {
    if (options.cancel != nullptr && options.cancel->cancelled()) break;
    const double share = points > 1 ? static_cast<double>(i) / (points - 1) : 1;
    options.memory_limit = static_cast<std::uint64_t>(std::ceil(low + share * std::max(0.0, high - low)));
    result.push_back({options.memory_limit, make_plan(model, options)});
  }
  return result;
}

std::vector<LargestBatch> largest_batches(const cost::Profile& profile, const cost::StepOptions& options,
                                          std::uint64_t memory_limit) {
  // Returns the plan of one strategy at a batch; without a choice the plan with the least memory.
  const auto at = [&](const cost::StepModel& model, const cost::UnitChoice* choice) {
    if (choice == nullptr) return memory_floor(model).plan;
    std::vector<cost::UnitChoice> choices;
    for (int unit = 0; unit < model.units(); ++unit)
      choices.push_back(simulate::nearest_choice(model, unit, *choice));
    return prefetch_schedule(model, choices, 1);
  };
  const auto search = [&](const std::string& name, const cost::UnitChoice* choice) {
    const auto simulated = [&](std::uint64_t batch) {
      const double factor = static_cast<double>(batch) / static_cast<double>(profile.batch_size);
      const cost::StepModel model = cost::make_step_model(scaled_to_batch(profile, factor), options);
      return simulate::simulate_step(model, at(model, choice), memory_limit);
    };
    std::uint64_t fits = 0;
    std::uint64_t too_large = 1;
    while (too_large <= (1U << 24) && simulated(too_large).fits) {
      fits = too_large;
      too_large *= 2;
    }
    while (fits + 1 < too_large) {
      const std::uint64_t middle = fits + (too_large - fits) / 2;
      (simulated(middle).fits ? fits : too_large) = middle;
    }
    LargestBatch result{name, fits, 0};
    if (fits > 0) {
      result.samples_per_s = static_cast<double>(fits * static_cast<std::uint64_t>(options.micro_batches)) /
                             simulated(fits).step_s;
    }
    return result;
  };
  std::vector<LargestBatch> all;
  for (const bool checkpoint : {false, true}) {
    for (const cost::Strategy strategy : cost::kStrategies) {
      const cost::UnitChoice choice{strategy, checkpoint};
      all.push_back(search(describe(choice), &choice));
    }
  }
  all.push_back(search("planned (least memory)", nullptr));
  return all;
}

}  // namespace rondo::plan
