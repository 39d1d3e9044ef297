#include "rondo/cost/profile.h"

#include <algorithm>
#include <cmath>

#include "rondo/base/bytes.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"

namespace rondo::cost {

std::string_view name(Collective collective) {
  switch (collective) {
    case Collective::all_reduce:
      return "all_reduce";
    case Collective::reduce_scatter:
      return "reduce_scatter";
    case Collective::all_gather:
      return "all_gather";
  }
  return "";
}

CostCurve::CostCurve(std::vector<CostPoint> points, std::string_view what) : points_(std::move(points)) {
  if (points_.size() < 2) throw DataError(str(what, ": needs at least two points, has ", points_.size()));
  for (std::size_t i = 0; i < points_.size(); ++i) {
    const CostPoint& point = points_[i];
    if (!std::isfinite(point.seconds) || point.seconds <= 0)
      throw DataError(str(what, "[", i, "]: ", point.seconds, " s is not a positive time"));
    if (i == 0) continue;
    const CostPoint& before = points_[i - 1];
    if (point.bytes <= before.bytes)
      throw DataError(str(what, "[", i, "]: ", point.bytes, " bytes do not exceed the ", before.bytes,
                          " of the point before; sizes must ascend"));
    if (point.seconds < before.seconds)
      throw DataError(str(what, "[", i, "]: ", point.bytes, " bytes take ", point.seconds, " s, less than ",
                          before.bytes, " bytes with ", before.seconds,
                          " s; times must not descend (measure again, or give the larger time to both)"));
  }
}

double CostCurve::seconds(double bytes) const {
  if (points_.empty() || bytes <= static_cast<double>(points_.front().bytes))
    return points_.empty() ? 0 : points_.front().seconds;
  auto upper = std::lower_bound(points_.begin(), points_.end(), bytes, [](const CostPoint& p, double b) {
    return static_cast<double>(p.bytes) < b;
  });
  if (upper == points_.end()) --upper;
  const CostPoint& a = *(upper - 1);
  const CostPoint& b = *upper;
  const double slope = (b.seconds - a.seconds) / static_cast<double>(b.bytes - a.bytes);
  return a.seconds + slope * (bytes - static_cast<double>(a.bytes));
}

bool CostCurve::in_range(std::uint64_t bytes) const {
  return !points_.empty() && bytes >= points_.front().bytes && bytes <= points_.back().bytes;
}

AlphaBeta fit_alpha_beta(const std::vector<CostPoint>& points) {
  // Weighted normal equations with weights 1 / seconds^2.
  double w = 0;
  double wx = 0;
  double wxx = 0;
  double wy = 0;
  double wxy = 0;
  for (const CostPoint& p : points) {
    const double weight = 1 / (p.seconds * p.seconds);
    const auto x = static_cast<double>(p.bytes);
    w += weight;
    wx += weight * x;
    wxx += weight * x * x;
    wy += weight * p.seconds;
    wxy += weight * x * p.seconds;
  }
  const double determinant = w * wxx - wx * wx;
  if (points.size() < 2 || determinant <= 0) return {};
  const double beta = (w * wxy - wx * wy) / determinant;
  const double alpha = (wy - beta * wx) / w;
  if (alpha < 0) return {0, wxy / wxx};
  if (beta < 0) return {wy / w, 0};
  return {alpha, beta};
}

double Link::seconds(Collective collective, double bytes, int group) const {
  if (group <= 1) return 0;
  return scaled_to(curve(collective).seconds(bytes), group);
}

double Link::scaled_to(double measured, int group) const {
  if (group == ranks || ranks <= 1) return measured;
  const double n = ranks;
  const double g = group;
  const double latency = std::min(alpha_s, measured);
  return latency * (g - 1) / (n - 1) + (measured - latency) * ((g - 1) / g) / ((n - 1) / n);
}

double Link::message_seconds(double bytes) const {
  if (bytes <= 0) return 0;
  if (!send_recv.points().empty()) return send_recv.seconds(bytes);
  return seconds(Collective::all_gather, 2 * bytes, 2);
}

double Link::exchange_seconds(double bytes, int group) const {
  if (bytes <= 0 || group <= 1) return 0;
  if (all_to_all.points().empty()) return seconds(Collective::all_gather, bytes, group);
  return scaled_to(all_to_all.seconds(bytes), group);
}

Link ring_link(int ranks, double latency_s, double bytes_per_s, double contention) {
  Link link;
  link.ranks = std::max(ranks, 2);
  link.contention = contention;
  const double n = link.ranks;
  for (const Collective collective : kCollectives) {
    const double passes = collective == Collective::all_reduce ? 2 : 1;
    std::vector<CostPoint> points;
    for (const std::uint64_t bytes : {KiB(1).count, GiB(16).count}) {
      points.push_back(
          {bytes, passes * ((n - 1) * latency_s + (n - 1) / n * static_cast<double>(bytes) / bytes_per_s)});
    }
    link.curves[static_cast<std::size_t>(collective)] = CostCurve(std::move(points), name(collective));
  }
  fit(link);
  return link;
}

void fit(Link& link) {
  const AlphaBeta line = fit_alpha_beta(link.curve(Collective::all_gather).points());
  link.alpha_s = line.alpha_s;
  link.beta_s_per_byte = line.beta_s_per_byte;
  const double bytes = line.beta_s_per_byte > 0 ? 9 * line.alpha_s / line.beta_s_per_byte : 0;
  link.saturating_bytes = static_cast<std::uint64_t>(std::clamp(bytes, 1.0, 1e12));
}

namespace {

constexpr double LayerPasses::*kSeconds[] = {&LayerPasses::forward_s, &LayerPasses::backward_s,
                                             &LayerPasses::backward_input_s, &LayerPasses::backward_weight_s};
constexpr std::uint64_t LayerPasses::*kBytes[] = {
    &LayerPasses::activation_bytes,        &LayerPasses::deferred_bytes,
    &LayerPasses::forward_workspace_bytes, &LayerPasses::backward_workspace_bytes,
    &LayerPasses::input_workspace_bytes,   &LayerPasses::weight_workspace_bytes};

}  // namespace

LayerPasses LayerPart::at(double samples) const {
  LayerPasses result;
  result.samples = static_cast<std::uint64_t>(std::max(samples, 0.0));
  const auto more = std::find_if(passes.begin(), passes.end(), [&](const LayerPasses& measured) {
    return static_cast<double>(measured.samples) >= samples;
  });
  // Interpolates between the two nearest measured batches; extrapolates from the nearest two. A single
  // measured batch is scaled in proportion.
  const auto upper =
      passes.size() == 1 ? passes.begin() : std::clamp(more, passes.begin() + 1, passes.end() - 1);
  const LayerPasses none{.samples = 0};
  const LayerPasses& lower = passes.size() == 1 ? none : *(upper - 1);
  const double share = (samples - static_cast<double>(lower.samples)) /
                       (static_cast<double>(upper->samples) - static_cast<double>(lower.samples));
  const auto between = [&](double low, double high) { return std::max(0.0, low + share * (high - low)); };
  for (const auto time : kSeconds) result.*time = between(lower.*time, (*upper).*time);
  for (const auto bytes : kBytes) {
    result.*bytes = static_cast<std::uint64_t>(
        std::llround(between(static_cast<double>(lower.*bytes), static_cast<double>((*upper).*bytes))));
  }
  return result;
}

const LayerPart* LayerProfile::part(const std::string& dimension, int ranks) const {
  const auto found = std::find_if(parts.begin(), parts.end(), [&](const LayerPart& part) {
    return part.ranks == ranks && (ranks == 1 || part.dimension == dimension);
  });
  return found == parts.end() ? nullptr : &*found;
}

namespace {

std::uint64_t scaled(std::uint64_t bytes, double factor) {
  return static_cast<std::uint64_t>(std::llround(static_cast<double>(bytes) * factor));
}

// Scales a backward workspace. Its gradient part does not depend on the batch size. A negative result is
// never below the need of a pass with the larger batch; a positive workspace is nearly all activations.
std::int64_t scaled_workspace(std::int64_t bytes, std::uint64_t gradient_bytes, double factor) {
  const auto gradient = static_cast<double>(gradient_bytes);
  const double scaled = static_cast<double>(bytes) * factor;
  if (bytes >= 0 || factor <= 1) return std::llround(scaled);
  return std::llround(factor * (static_cast<double>(bytes) + gradient) - gradient);
}

}  // namespace

std::int64_t backward_workspace(const UnitProfile& unit, bool checkpointed) {
  if (!checkpointed) return unit.backward_workspace_bytes;
  if (unit.checkpointed_backward_workspace_bytes) return *unit.checkpointed_backward_workspace_bytes;
  return std::max(unit.backward_workspace_bytes, static_cast<std::int64_t>(unit.forward_workspace_bytes) -
                                                     static_cast<std::int64_t>(unit.gradient_bytes));
}

Profile scaled_to_batch(const Profile& profile, double factor) {
  Profile result = profile;
  result.batch_size = scaled(profile.batch_size, factor);
  for (UnitProfile& unit : result.units) {
    unit.forward_s *= factor;
    unit.backward_s *= factor;
    unit.recompute_s *= factor;
    unit.activation_bytes = scaled(unit.activation_bytes, factor);
    unit.checkpointed_activation_bytes = scaled(unit.checkpointed_activation_bytes, factor);
    unit.forward_workspace_bytes = scaled(unit.forward_workspace_bytes, factor);
    unit.backward_workspace_bytes =
        scaled_workspace(unit.backward_workspace_bytes, unit.gradient_bytes, factor);
    if (auto& checkpointed = unit.checkpointed_backward_workspace_bytes)
      checkpointed = scaled_workspace(*checkpointed, unit.gradient_bytes, factor);
  }
  for (LayerProfile& layer : result.layers) {  // each pass contains its number of samples
    layer.output_bytes = scaled(layer.output_bytes, factor);
    layer.checkpointed_activation_bytes = scaled(layer.checkpointed_activation_bytes, factor);
    for (LayerPart& part : layer.parts) {
      for (std::uint64_t* bytes : {&part.forward_message_bytes, &part.backward_message_bytes})
        *bytes = scaled(*bytes, factor);
    }
  }
  return result;
}

void fit_to_pass(Profile& profile, double seconds) {
  double sum = 0;
  for (const UnitProfile& unit : profile.units) sum += unit.forward_s + unit.backward_s;
  if (!(sum > 0)) return;
  for (UnitProfile& unit : profile.units) {
    for (double* time : {&unit.forward_s, &unit.backward_s, &unit.recompute_s}) *time *= seconds / sum;
  }
}

std::optional<std::string> overhead_note(const Profile& profile, int micro_batches) {
  if (micro_batches <= 1 || profile.overhead_s <= 0) return {};
  const auto text = [](double seconds) {
    return to_string(std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds)));
  };
  return str("the computation outside units (overhead_s, ", text(profile.overhead_s),
             ") is counted once; with ", micro_batches,
             " micro-batches, part of it runs once per micro-batch, so a step may take up to ",
             text(profile.overhead_s * (micro_batches - 1)), " longer than predicted");
}

}  // namespace rondo::cost
