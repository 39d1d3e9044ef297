#include "apps/bench/harness/benchmark.h"

#include <cstdio>

#include "rondo/base/arithmetic.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo::bench {
namespace {

std::string number_text(double value, int decimals) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

std::string cell_text(const Json& row, const Column& column) {
  const auto found = row.find(column.key);
  if (found == row.end() || found->is_null()) return "-";
  if (found->is_string()) return found->get<std::string>();
  if (found->is_boolean()) return found->get<bool>() ? "yes" : "no";
  if (!found->is_array()) return number_text(found->get<double>() * column.scale, column.decimals);
  std::vector<std::string> texts;
  for (const Json& value : *found) texts.push_back(number_text(value.get<double>(), column.decimals));
  return join(texts, " ");
}

}  // namespace

Command add_benchmark_command(CLI::App& parent, const BenchmarkText& text,
                              const std::function<std::function<Json(bool)>(CLI::App&)>& declare) {
  CLI::App* app = parent.add_subcommand(text.name, text.summary);
  app->footer(text.footer);
  app->option_defaults()->always_capture_default();
  const auto run = declare(*app);
  const auto json = std::make_shared<std::string>();
  app->add_option("--json", *json, "Write the result to FILE, or '-' for standard output");
  return {
      app, [run, json] {
        const std::string& target = *json;
        const Json rows = run(target != "-");
        write_json(target, rows);
        for (const Json& row : rows) {
          if (row.is_object() && !row.value("correct", true))
            throw Error("some results are wrong: see WRONG in the table, or \"correct\": false in the JSON");
        }
        return 0;
      }};
}

void add_turns_flag(CLI::App& app, const char* name, int& turns, const char* help) {
  app.add_option(name, turns, help)->check(between(1, 1000));
}

double timed(const std::function<void()>& action) {
  const TimePoint begin = Clock::now();
  action();
  return seconds(Clock::now() - begin);
}

double fastest(const std::vector<double>& times) { return *std::min_element(times.begin(), times.end()); }

RepeatedTime repeated(const std::vector<double>& times) { return {median(times), fastest(times)}; }

Json ratio_row(const Ratio& ratio) {
  Json row{{"ratio", ratio.ratio},
           {"of", ratio.of},
           {"to", ratio.to},
           {"value", ratio.value},
           {"goal", ratio.goal ? Json(*ratio.goal) : Json(nullptr)},
           {"better", ratio.higher_is_better ? "higher" : "lower"}};
  if (ratio.of_minima) row["by"] = *ratio.of_minima ? "min" : "p50";
  return row;
}

void print_ratios(const Json& rows, int ratio_width) {
  bool of_speeds = false;
  for (const Json& row : rows) {
    if (!row.contains("ratio")) continue;
    const double value = row["value"].get<double>();
    const std::string by = row.value("by", "");
    of_speeds = of_speeds || !by.empty();
    std::printf("%-*s %s / %s: %.3f%s", ratio_width, row["ratio"].get<std::string>().c_str(),
                row["of"].get<std::string>().c_str(), row["to"].get<std::string>().c_str(), value,
                by == "min" ? "*" : "");
    if (!row["goal"].is_null()) {
      const double goal = row["goal"].get<double>();
      const bool higher = row["better"] == "higher";
      std::printf("  (goal %s %.2f: %s)", higher ? ">=" : "<=", goal,
                  (higher ? value >= goal : value <= goal) ? "met" : "missed");
    }
    std::printf("\n");
  }
  if (of_speeds) std::printf("%s\n", kPeerRatioRule);
}

void print_table(const Json& rows, const std::vector<Column>& columns, int ratio_width) {
  const auto print_line = [&](const auto& text_of) {
    std::string line;
    for (const Column& column : columns) {
      char text[512];
      std::snprintf(text, sizeof text, "%*s ", column.width, text_of(column).c_str());
      line += text;
    }
    std::printf("%s\n", line.substr(0, line.find_last_not_of(' ') + 1).c_str());
  };
  bool has_heading = false;
  for (const Json& row : rows) {
    if (!row.contains(columns.front().key)) continue;
    if (!has_heading) print_line([](const Column& column) { return column.heading; });
    has_heading = true;
    print_line([&](const Column& column) { return cell_text(row, column); });
  }
  print_ratios(rows, ratio_width);
}

}  // namespace rondo::bench
