#include "apps/bench/print_ratio.h"

#include <cstdio>
#include <string>

namespace rondo::bench {

void print_ratio(const nlohmann::ordered_json& row, int width) {
  const double value = row["value"].get<double>();
  std::printf("%-*s %s / %s: %.3f%s", width, row["ratio"].get<std::string>().c_str(),
              row["of"].get<std::string>().c_str(), row["to"].get<std::string>().c_str(), value,
              row.value("by", "") == "min" ? "*" : "");
  if (!row["goal"].is_null()) {
    const double goal = row["goal"].get<double>();
    const bool higher = row["better"] == "higher";
    std::printf("  (goal %s %.2f: %s)", higher ? ">=" : "<=", goal,
                (higher ? value >= goal : value <= goal) ? "met" : "missed");
  }
  std::printf("\n");
}

}  // namespace rondo::bench
