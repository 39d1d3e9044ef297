#include <iomanip>
#include <iostream>
#include <map>
#include <sstream>
#include <tuple>

#include "apps/bench/collectives/collectives.h"
#include "rondo/base/process.h"
#include "rondo/base/text.h"
#include "rondo/collective/algorithms/registry.h"
#include "rondo/collective/chooser/chooser.h"

namespace rondo::bench {
namespace {

// Returns true for rows that compete: with registered memory and the shortest call, as for tensors of
// libtorch's allocator.
bool competes(const Json& row) {
  const auto& scheduled = collective::scheduled_operations();
  const auto is_operation = [&](OperationKind kind) { return row.at("operation") == name(kind); };
  if (std::none_of(scheduled.begin(), scheduled.end(), is_operation)) return false;
  if (row.at("system") != "rondo" || row.at("channel") != "shm" || row.at("codec") != "none") return false;
  if (!row.at("correct").get<bool>()) return false;
  if (row.at("algorithm") != "auto") return true;
  return row.at("registered").get<bool>() &&
         (row.at("call") == "direct" || row.at("operation") != "all_reduce");
}

std::string algorithm_of(const Json& row) {
  const std::string algorithm = row.at("algorithm");
  return algorithm == "auto" ? collective::kEngine : algorithm;
}

// Operation, ranks, bytes.
using Cell = std::tuple<std::string, int, std::uint64_t>;

std::map<Cell, std::vector<const Json*>> cells_of(const Json& rows) {
  std::map<Cell, std::vector<const Json*>> cells;
  for (const Json& row : rows) {
    if (competes(row)) cells[{row.at("operation"), row.at("ranks"), row.at("bytes")}].push_back(&row);
  }
  return cells;
}

double p50(const Json& row) { return row.at("p50_us"); }

const Json& best_of(const std::vector<const Json*>& rows) {
  return **std::min_element(rows.begin(), rows.end(), [](auto* a, auto* b) { return p50(*a) < p50(*b); });
}

// Returns the time that represents a row. On a busy machine medians depend on disturbances. An algorithm
// whose fastest run was no faster than the engine's is not faster, so it counts as at least the engine's
// time.
double figure_of(const Json& row, const std::vector<const Json*>& competitors) {
  double figure = p50(row);
  for (const Json* other : competitors) {
    if (algorithm_of(*other) != collective::kEngine) continue;
    if (row.at("min_us").get<double>() >= other->at("min_us").get<double>())
      figure = std::max(figure, p50(*other));
  }
  return figure;
}

collective::Choice choice_for(const Cell& cell, const collective::Chooser& chooser) {
  const auto& [operation, ranks, bytes] = cell;
  return chooser.choose(collective::find_operation(operation), ranks, bytes);
}

// Returns the measurements for the chooser, from rows of the JSON: rondo's engine and its schedules, over
// shared memory.
collective::Tuning tuning_from(const Json& rows) {
  collective::Tuning tuning{machine_name(), {}};
  for (const auto& [cell, competitors] : cells_of(rows)) {
    const auto& [operation, ranks, bytes] = cell;
    collective::TuningCell measured{collective::find_operation(operation), ranks, bytes, {}};
    for (const Json* row : competitors)
      measured.times.push_back({algorithm_of(*row), figure_of(*row, competitors)});
    tuning.cells.push_back(std::move(measured));
  }
  return tuning;
}

// Combines two measurements of the same cells: for the engine the smaller time, for algorithms the larger. An
// algorithm that wins with these was faster twice.
collective::Tuning confirmed(collective::Tuning first, const collective::Tuning& second) {
  for (collective::TuningCell& cell : first.cells) {
    for (const collective::TuningCell& again : second.cells) {
      if (std::tie(cell.operation, cell.ranks, cell.bytes) !=
          std::tie(again.operation, again.ranks, again.bytes))
        continue;
      for (collective::AlgorithmTime& time : cell.times) {
        for (const collective::AlgorithmTime& other : again.times) {
          if (time.algorithm != other.algorithm) continue;
          time.p50_us = time.algorithm == collective::kEngine ? std::min(time.p50_us, other.p50_us)
                                                              : std::max(time.p50_us, other.p50_us);
        }
      }
    }
  }
  return first;
}

// Sets "chosen" (the chooser's choice), "best" (the shortest p50) and "ratio_to_best" in competing rows: rows
// of tuning_from() with the same operation, size and number of ranks.
void mark_choices(Json& rows, const collective::Chooser& chooser) {
  struct Pick {
    std::string chosen;
    std::string best;
    double best_us;
  };
  std::map<Cell, Pick> picks;
  for (const auto& [cell, competitors] : cells_of(rows)) {
    const Json& best = best_of(competitors);
    picks[cell] = {choice_for(cell, chooser).algorithm, algorithm_of(best), p50(best)};
  }
  for (Json& row : rows) {
    if (!competes(row)) continue;
    const auto pick = picks.find({row.at("operation"), row.at("ranks"), row.at("bytes")});
    if (pick == picks.end()) continue;
    row["chosen"] = algorithm_of(row) == pick->second.chosen;
    row["best"] = algorithm_of(row) == pick->second.best;
    row["ratio_to_best"] = p50(row) / pick->second.best_us;
  }
}

// Returns one line per operation, size and number of ranks with the choice and its reason, then the distance
// of the choices from the best.
std::string describe_choices(const Json& rows, const collective::Chooser& chooser) {
  std::ostringstream out;
  double worst = 1;
  std::string worst_cell;
  for (const auto& [cell, competitors] : cells_of(rows)) {
    const collective::Choice choice = choice_for(cell, chooser);
    out << std::left << std::setw(24) << choice.algorithm << choice.reason << "\n";
    for (const Json* row : competitors) {
      if (algorithm_of(*row) != choice.algorithm) continue;
      const double ratio = p50(*row) / p50(best_of(competitors));
      if (ratio <= worst) continue;
      worst = ratio;
      worst_cell = str(std::get<0>(cell), " of ", to_string(Bytes{std::get<2>(cell)}), " on ",
                       std::get<1>(cell), " ranks");
    }
  }
  out << "the pick takes at most " << std::fixed << std::setprecision(2) << worst << " x the best"
      << (worst_cell.empty() ? "" : str(" (", worst_cell, ")")) << "\n";
  return out.str();
}

// Returns the cells that must be measured again before an algorithm other than the engine is chosen.
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

void choose(Json& rows, const CollectivesSettings& settings) {
  if (!settings.tune) return mark_choices(rows, {collective::read_tuning_of_this_machine(), {}});
  collective::Tuning tuning = tuning_from(rows);
  if (const CollectivesSettings doubtful = doubtful_part(settings, tuning); !doubtful.sizes.empty())
    tuning = confirmed(std::move(tuning), tuning_from(measure_collectives(doubtful)));
  const collective::Chooser chooser(tuning, {});
  const auto path = collective::tuning_path();
  // Stored only at the end: the engines of the check must not use the new tuning yet.
  if (settings.check_chooser) rows = measure_collectives(settings);
  mark_choices(rows, chooser);
  collective::write_tuning(path, tuning);
  std::ostream& out = settings.table ? std::cout : std::cerr;
  out << "\n"
      << describe_choices(rows, chooser) << "kept in " << path.string() << " for " << tuning.machine << "\n";
}

}  // namespace rondo::bench
