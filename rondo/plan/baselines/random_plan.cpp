#include <algorithm>

#include "rondo/base/random.h"
#include "rondo/plan/baselines/baselines.h"

namespace rondo::plan {
namespace {

simulate::Candidate draw(const cost::StepModel& model, RandomStream& random, double thrift) {
  simulate::Candidate plan;
  plan.launches.resize(static_cast<std::size_t>(model.slots.count()));
  for (int unit = 0; unit < model.units(); ++unit) {
    const auto& choices = model.choices[static_cast<std::size_t>(unit)];
    const cost::ChoiceCost* choice = &choices[random.below(choices.size())];
    if (random.uniform() < thrift) {
      for (const cost::ChoiceCost& other : choices) {
        if (other.persistent_bytes + other.held_bytes < choice->persistent_bytes + choice->held_bytes)
          choice = &other;
      }
    }
    plan.choices.push_back(choice->choice);
    for (const int j : choice->jobs) {
      const cost::Job& job = model.jobs[static_cast<std::size_t>(j)];
      const int last = job.due == model.slots.end() && thrift > 0
                           ? std::min(job.last, job.first + 1)  // gradients leave soon where memory is short
                           : job.last;
      for (int block = 0; block < job.blocks; ++block) {
        const int first = thrift > 0 && job.is_gather_buffer() ? last : job.first;
        const auto slot =
            static_cast<std::size_t>(first) + random.below(static_cast<std::uint64_t>(last - first + 1));
        plan.launches[slot].push_back({j, 1});
      }
    }
  }
  for (auto& slot : plan.launches) {
    for (std::size_t i = slot.size(); i > 1; --i) std::swap(slot[i - 1], slot[random.below(i)]);
  }
  return plan;
}

}  // namespace

simulate::Candidate random_plan(const cost::StepModel& model, std::uint64_t seed, std::uint64_t number,
                                std::uint64_t memory_limit) {
  RandomStream random(seed, number);
  simulate::Candidate plan;
  for (const double thrift : {0.0, 0.0, 0.0, 0.3, 0.6, 0.8, 0.9, 1.0}) {
    plan = draw(model, random, thrift);
    if (simulate::simulate_step(model, plan, memory_limit).fits) break;
  }
  return plan;
}

}  // namespace rondo::plan
