#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "rondo/backend/context.h"
#include "rondo/backend/gloo/factory.h"
#include "rondo/base/text.h"
#include "tests/backend/ranks.h"

namespace rondo::host_layouts {

// Number of each rank's host: alternating, uneven with a rank alone, three hosts.
inline const std::vector<std::vector<int>> kLayouts = {{0, 1, 0, 1}, {1, 0, 0}, {0, 1, 2, 2, 0}};

inline void run_layout(const std::vector<int>& hosts, const std::function<void(Context&)>& body,
                       const std::string& backend = "hierarchical(native, gloo, chunk=64KiB)") {
  if (!have_gloo()) GTEST_SKIP() << "this build has no Gloo";
  SCOPED_TRACE("hosts " + join(hosts, " "));
  testing::run_ranks(static_cast<int>(hosts.size()), backend, body, std::chrono::seconds(60), hosts);
}

inline at::Tensor contribution(int rank, std::int64_t elements, at::ScalarType type = at::kFloat) {
  return (at::arange(elements, at::kLong) % 7 + rank + 1).to(type);
}

inline at::Tensor sum_of_contributions(int size, std::int64_t elements, at::ScalarType type = at::kFloat) {
  at::Tensor sum = contribution(0, elements, type);
  for (int rank = 1; rank < size; ++rank) sum += contribution(rank, elements, type);
  return sum;
}

}  // namespace rondo::host_layouts
