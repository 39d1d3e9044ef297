#include "rondo/train/training_place.h"

#include "rondo/base/text.h"
#include "rondo/env/cluster.h"
#include "rondo/env/environment.h"
#include "rondo/parallel/grouped/group_place.h"
#include "rondo/parallel/grouped/grouped_options.h"

namespace rondo {
namespace {

class WaitForWorkers final : public Callback {
 public:
  explicit WaitForWorkers(Strategy& strategy) : strategy_(strategy) {}
  std::string name() const override { return "wait_for_workers"; }
  void on_train_begin(Trainer&, const FitOutline& outline) override { last_ = outline.total_steps; }
  void on_step_end(Trainer&, const StepRecord& record) override {
    if (record.step == last_) strategy_.wait_for_others();
  }

 private:
  Strategy& strategy_;
  std::int64_t last_ = 0;
};

}  // namespace

TrainingPlace training_place(ServedWorker worker, const OptionValues& values, InitOptions& init) {
  TrainingPlace place;
  if (worker == ServedWorker::none) return place;
  place.is_served = true;
  init.init_method = "alone";
  // Without a cluster the strategy itself reports the error.
  const auto cluster = env::read_cluster(env::process_environment());
  if (!cluster) return place;
  place.writes = cluster->index == 0;
  place.reader = place.worker = cluster->index;
  place.readers = static_cast<int>(cluster->workers.size());
  if (worker == ServedWorker::group) {
    const auto given = values.find("ps-groups");
    const int groups = given == values.end() ? GroupedOptions().groups
                                             : static_cast<int>(parse_integer(given->second, "--ps-groups"));
    place.worker = find_group_place(*cluster, groups).group;
    init = init_options_of_group(groups, init);
  }
  return place;
}

std::string metrics_file(const TrainingPlace& place) {
  return place.only_trains() ? str("metrics.worker-", place.worker, ".jsonl") : "metrics.jsonl";
}

std::int64_t steps_done_before(const Strategy& strategy) {
  return static_cast<std::int64_t>(strategy.steps_before());
}

std::shared_ptr<Callback> wait_for_workers(Strategy& strategy, const TrainingPlace& place) {
  return place.is_served && !place.only_trains() ? std::make_shared<WaitForWorkers>(strategy) : nullptr;
}

}  // namespace rondo
