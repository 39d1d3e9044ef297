#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/train/log_targets/prometheus/prometheus_target.h"

namespace rondo {
namespace {

void check_address(const std::string& address, const std::string& what) {
  const std::size_t colon = address.rfind(':');
  const std::string port = colon == std::string::npos ? address : address.substr(colon + 1);
  const bool digits =
      !port.empty() && port.size() <= 5 && port.find_first_not_of("0123456789") == std::string::npos;
  if (colon == 0 || !digits || std::stoi(port) > 65535)
    throw UsageError(str(what, " '", address, "': expected [HOST:]PORT, such as 9464 or 0.0.0.0:9464"));
}

}  // namespace

Declaration PrometheusTarget::declaration() {
  OptionsOf<Options> table;
  table.add("prometheus-address", &Options::address,
            "Address of rank 0's page, [HOST:]PORT; default host 127.0.0.1, port 0: a free one",
            {.check = check_address, .type = "[HOST:]PORT"});
  table.without_flags({"prometheus-address"});
  return {"prometheus", "a page with the newest figures, for Prometheus to scrape", table};
}

}  // namespace rondo
