#include "rondo/format/report/downsample.h"

#include <cmath>

namespace rondo {

std::vector<CurvePoint> downsample(const std::vector<CurvePoint>& points, std::size_t limit) {
  if (points.size() <= limit || limit < 3) return points;
  const std::size_t buckets = limit - 2;
  const auto bucket_begin = [&](std::size_t bucket) { return 1 + bucket * (points.size() - 2) / buckets; };
  std::vector<CurvePoint> chosen{points.front()};
  for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
    const std::size_t begin = bucket_begin(bucket);
    const std::size_t end = bucket_begin(bucket + 1);
    const std::size_t next_end = bucket + 1 < buckets ? bucket_begin(bucket + 2) : points.size();
    CurvePoint next;  // the mean of the bucket behind
    for (std::size_t i = end; i < next_end; ++i) {
      next.step += points[i].step / static_cast<double>(next_end - end);
      next.value += points[i].value / static_cast<double>(next_end - end);
    }
    const CurvePoint& last = chosen.back();
    std::size_t best = begin;
    double best_area = -1;
    for (std::size_t i = begin; i < end; ++i) {
      const double area = std::abs((last.step - next.step) * (points[i].value - last.value) -
                                   (last.step - points[i].step) * (next.value - last.value));
      if (area > best_area) {
        best_area = area;
        best = i;
      }
    }
    chosen.push_back(points[best]);
  }
  chosen.push_back(points.back());
  return chosen;
}

}  // namespace rondo
