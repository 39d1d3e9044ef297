#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/common/command_line.h"
#include "apps/common/flag_checks.h"
#include "rondo/base/arithmetic.h"
#include "rondo/base/time.h"

// Shared code of all benchmarks: a subcommand with its flags, rows of results, ratios and tables.
namespace rondo::bench {

using Json = nlohmann::ordered_json;

// Name, summary and examples of a subcommand.
struct BenchmarkText {
  const char* name;
  const char* summary;
  const char* footer;
};

// Adds a subcommand with `--json` and the defaults in its help. `declare` adds its flags. `run` measures and
// returns the rows; its second argument is whether it prints tables. Rows with `"correct": false` make the
// program fail after they have been written.
template <class Options>
Command add_benchmark(CLI::App& parent, const BenchmarkText& text,
                      const std::function<void(CLI::App&, Options&)>& declare,
                      const std::function<Json(Options&, bool prints)>& run);

// Adds a flag for the number of turns of each system.
void add_turns_flag(CLI::App& app, const char* name, int& turns, const char* help);

// Returns the seconds that `action` takes.
double timed(const std::function<void()>& action);
double fastest(const std::vector<double>& times);
// Returns the median and the minimum of `times`.
RepeatedTime repeated(const std::vector<double>& times);

// A comparison of two systems.
struct Ratio {
  std::string ratio;  // name of the ratio
  std::string of;
  std::string to;
  double value = 0;
  std::optional<double> goal = {};
  bool higher_is_better = true;
  std::optional<bool> of_minima = {};  // for speeds: whether minima are compared, see peer_ratio()
};
// Returns the row {ratio, of, to, value, goal, better}, and for speeds `by` ("p50" or "min").
Json ratio_row(const Ratio& ratio);

// A column of a table: the value under `key`, times `scale`.
struct Column {
  std::string heading;
  int width;  // negative: aligned to the left
  std::string key;
  int decimals = 0;
  double scale = 1;
};
// Prints the rows that have the first column's key, then every ratio (its name in `ratio_width` columns) with
// its goal and whether the goal is met, then the rule of ratios if one was of speeds.
void print_table(const Json& rows, const std::vector<Column>& columns, int ratio_width = 4);
void print_ratios(const Json& rows, int ratio_width);

// Implementation of add_benchmark().
Command add_benchmark_command(CLI::App& parent, const BenchmarkText& text,
                              const std::function<std::function<Json(bool)>(CLI::App&)>& declare);

template <class Options>
Command add_benchmark(CLI::App& parent, const BenchmarkText& text,
                      const std::function<void(CLI::App&, Options&)>& declare,
                      const std::function<Json(Options&, bool prints)>& run) {
  return add_benchmark_command(parent, text, [&](CLI::App& app) {
    const auto options = std::make_shared<Options>();
    declare(app, *options);
    return [options, run](bool prints) { return run(*options, prints); };
  });
}

}  // namespace rondo::bench
