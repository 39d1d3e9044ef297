#include "apps/bench/collectives/choose.h"

#include <algorithm>
#include <iostream>
#include <string>
#include <utility>

#include "apps/bench/collectives/measure.h"
#include "apps/bench/collectives/tune.h"
#include "rondo/base/text.h"
#include "rondo/collective/chooser/chooser.h"

namespace rondo::bench {
namespace {

// What to measure again before anything but the engine is picked.
CollectivesSettings doubtful_part(const CollectivesSettings& settings, const collective::Tuning& tuning) {
  const collective::Chooser chooser(tuning, {});
  CollectivesSettings part = settings;
  part.table = false;
  part.operations.clear();
  part.sizes.clear();
  const auto add = [](auto& list, const auto& item) {
    if (std::find(list.begin(), list.end(), item) == list.end()) list.push_back(item);
  };
  for (const collective::TuningCell& cell : tuning.cells) {
    if (chooser.choose(cell.operation, cell.ranks, cell.bytes).algorithm == collective::kEngine) continue;
    add(part.operations, std::string(name(cell.operation)));
    add(part.sizes, Bytes{cell.bytes});
  }
  return part;
}

}  // namespace

void choose(nlohmann::ordered_json& rows, const CollectivesSettings& settings) {
  if (!settings.tune) return mark_choices(rows, {collective::read_tuning_of_this_machine(), {}});
  collective::Tuning tuning = tuning_from(rows);
  if (const CollectivesSettings doubtful = doubtful_part(settings, tuning); !doubtful.sizes.empty())
    tuning = confirmed(std::move(tuning), tuning_from(measure_collectives(doubtful)));
  const collective::Chooser chooser(tuning, {});
  const auto path = collective::tuning_path();
  // Kept at the end: the check's engine must not run by them yet.
  if (settings.check_chooser) rows = measure_collectives(settings);
  mark_choices(rows, chooser);
  collective::write_tuning(path, tuning);
  std::ostream& out = settings.table ? std::cout : std::cerr;
  out << "\n"
      << describe_choices(rows, chooser) << "kept in " << path.string() << " for " << tuning.machine << "\n";
}

}  // namespace rondo::bench
