#include "rondo/train/log_targets/prometheus/prometheus_target.h"

#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "rondo/control/http_page.h"
#include "rondo/format/metrics_export.h"

namespace rondo {
namespace {

struct Newest {
  std::mutex
      mutex;  // protects the fields below: the training thread writes them, the page's thread reads them
  std::vector<MetricsRow> of_step;
  std::optional<MetricsRow> validation;
};

std::string whole_address(const std::string& given) {
  return given.find(':') == std::string::npos ? "127.0.0.1:" + given : given;
}

}  // namespace

LogTarget PrometheusTarget::make(const Options& options, const LoggedRun& run) {
  if (!run.writes) return {};
  const auto newest = std::make_shared<Newest>();
  const auto page = std::make_shared<control::HttpPage>(
      control::HttpPage::Options{.address = whole_address(options.address)}, [newest] {
        const std::lock_guard lock(newest->mutex);
        return prometheus_text(newest->of_step, newest->validation);
      });
  std::fprintf(stderr, "metrics for Prometheus at %s\n", page->url().c_str());
  return {.observer = [newest, page](std::span<const MetricsRow> rows) {
    const std::lock_guard lock(newest->mutex);
    if (rows.front().is_validation()) {
      newest->validation = rows.front();
    } else {
      newest->of_step.assign(rows.begin(), rows.end());
    }
  }};
}

}  // namespace rondo
