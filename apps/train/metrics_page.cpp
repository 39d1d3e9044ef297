#include "apps/train/metrics_page.h"

#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/control/http_page.h"
#include "rondo/format/metrics_export.h"

namespace rondo {
namespace {

std::string whole_address(const std::string& given) {
  const std::size_t colon = given.rfind(':');
  const std::string host = colon == std::string::npos ? "127.0.0.1" : given.substr(0, colon);
  const std::string port = colon == std::string::npos ? given : given.substr(colon + 1);
  const bool digits =
      !port.empty() && port.size() <= 5 && port.find_first_not_of("0123456789") == std::string::npos;
  if (host.empty() || !digits || std::stoi(port) > 65535)
    throw UsageError(str("--prometheus '", given, "' is not [HOST:]PORT, such as 9464 or 0.0.0.0:9464"));
  return str(host, ":", port);
}

struct Newest {
  std::mutex mutex;  // protects the fields below: training's thread writes, the page's reads
  std::vector<MetricsRow> of_step;
  std::optional<MetricsRow> validation;
};

}  // namespace

std::function<void(std::span<const MetricsRow>)> start_metrics_page(const std::string& address) {
  const auto newest = std::make_shared<Newest>();
  const auto page = std::make_shared<control::HttpPage>(
      control::HttpPage::Options{.address = whole_address(address)}, [newest] {
        const std::lock_guard lock(newest->mutex);
        return prometheus_text(newest->of_step, newest->validation);
      });
  std::fprintf(stderr, "metrics for Prometheus at %s\n", page->url().c_str());
  return [newest, page](std::span<const MetricsRow> rows) {
    const std::lock_guard lock(newest->mutex);
    if (rows.front().is_validation()) {
      newest->validation = rows.front();
    } else {
      newest->of_step.assign(rows.begin(), rows.end());
    }
  };
}

}  // namespace rondo
