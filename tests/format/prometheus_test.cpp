#include "rondo/format/metrics_export.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <sstream>

namespace rondo::prometheus_test {
namespace {

MetricsRow row(int rank) {
  MetricsRow row;
  row.rank = rank;
  row.step = 7;
  row.loss = std::numeric_limits<double>::quiet_NaN();
  row.learning_rate = 1e-3;
  row.step_ms = 125;
  row.compute_ms = 100.5 + rank;
  row.exposed_comm_ms = 24.5 - rank;
  row.peak_bytes = 1ULL << 33;
  row.others = {{"gradient norm", 2.5}};
  return row;
}

TEST(Prometheus, EachFigureIsAGaugeInBaseUnits) {
  MetricsRow validation;
  validation.step = 5;
  validation.validation_loss = 0.25;
  const std::string text = prometheus_text(std::vector{row(0), row(1)}, validation);
  for (const char* line :
       {"rondo_step 7\n", "rondo_ranks 2\n", "rondo_loss NaN\n", "rondo_learning_rate 0.001\n",
        "rondo_step_seconds{rank=\"0\"} 0.125\n", "rondo_compute_seconds{rank=\"1\"} 0.1015\n",
        "rondo_waiting_seconds{rank=\"1\"} 0.0235\n", "rondo_peak_bytes{rank=\"1\"} 8.58993459e+09\n",
        "rondo_gradient_norm 2.5\n", "rondo_validation_loss 0.25\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "is not in\n" << text;
  }
}

// The format requires one TYPE line per metric, before its values.
TEST(Prometheus, EachMetricIsDeclaredOnce) {
  std::istringstream lines(prometheus_text(std::vector{row(0), row(1)}, {}));
  std::set<std::string> declared;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string first, second, name;
    words >> first >> second >> name;
    if (first == "#" && second == "TYPE") {
      EXPECT_TRUE(declared.insert(name).second) << name;
    } else if (first != "#") {
      EXPECT_TRUE(declared.contains(first.substr(0, first.find('{')))) << line;
    }
  }
  EXPECT_TRUE(declared.contains("rondo_step_seconds"));
}

TEST(Prometheus, BeforeTheFirstStepThereIsNothing) { EXPECT_EQ(prometheus_text({}, {}), ""); }

}  // namespace
}  // namespace rondo::prometheus_test
