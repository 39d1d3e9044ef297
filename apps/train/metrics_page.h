#pragma once

#include <functional>
#include <span>
#include <string>

#include "rondo/format/metrics.h"

namespace rondo {

// Starts what `--prometheus [HOST:]PORT` asks for, 127.0.0.1 without a host, and says where it is; returns
// the function that tells it of new rows. It serves as long as that function or a copy of it lives. Throws
// UsageError for an address that cannot be, CommunicationError for one that is taken.
std::function<void(std::span<const MetricsRow>)> start_metrics_page(const std::string& address);

}  // namespace rondo
