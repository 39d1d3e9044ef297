#pragma once

#include <cstddef>
#include <vector>

namespace rondo {

// A point of a curve, for either horizontal axis.
struct CurvePoint {
  double step = 0;
  double elapsed_s = 0;
  double value = 0;
};

// At most `limit` (at least 3) of the points, chosen so that the drawn curve looks the same:
// Largest-Triangle-Three- Buckets (Steinarsson, "Downsampling Time Series for Visual Representation", 2013).
// Keeps the first and the last.
std::vector<CurvePoint> downsample(const std::vector<CurvePoint>& points, std::size_t limit);

}  // namespace rondo
