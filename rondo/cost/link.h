#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace rondo::cost {

// The collectives that sharded training uses.
enum class Collective { all_reduce, reduce_scatter, all_gather };
inline constexpr std::array kCollectives{Collective::all_reduce, Collective::reduce_scatter,
                                         Collective::all_gather};
std::string_view name(Collective collective);

// A measured size and the seconds it takes.
struct CostPoint {
  std::uint64_t bytes = 0;
  double seconds = 0;
};

// Seconds of one collective against the bytes of its whole buffer, on all ranks of a link: straight lines
// between measured points. Below the first point its latency stays, above the last the slope of the last
// piece goes on; in_range() tells which sizes were measured.
class CostCurve {
 public:
  CostCurve() = default;
  // At least two points, sizes strictly ascending and seconds positive and not descending; throws DataError
  // that names `what` and the point.
  CostCurve(std::vector<CostPoint> points, std::string_view what);

  double seconds(double bytes) const;
  bool in_range(std::uint64_t bytes) const;
  const std::vector<CostPoint>& points() const { return points_; }

 private:
  std::vector<CostPoint> points_;
};

// seconds = alpha + beta * bytes
struct AlphaBeta {
  double alpha_s = 0;
  double beta_s_per_byte = 0;
};

// The line that fits the points best where every point counts by its RELATIVE error: ordinary least squares
// would leave small messages wrong by a large factor.
AlphaBeta fit_alpha_beta(const std::vector<CostPoint>& points);

// Connection between the ranks, as measured with `ranks` of them.
struct Link {
  int ranks = 2;
  std::array<CostCurve, kCollectives.size()> curves;  // by Collective
  double alpha_s = 0;                                 // of one collective
  double beta_s_per_byte = 0;
  std::uint64_t saturating_bytes = 1;  // a block this large reaches 90 % of the bandwidth
  // Ranks of one host write their shards where all of them read: parameters are there once and never
  // gathered.
  bool parameters_in_place = false;
  double contention = 0;  // share of its speed that compute loses while communication goes on, in [0, 1)
  // By bytes: of a message to one other rank, and of an exchange of all with all by what a rank gives
  // together. Without points where nobody measured.
  CostCurve send_recv, all_to_all;

  const CostCurve& curve(Collective collective) const { return curves[static_cast<std::size_t>(collective)]; }
  // Seconds of a collective among `group` ranks. Another group size than the measured one scales as the
  // ring does: latency with group - 1 rounds, the rest with (group - 1) / group. Nothing for one rank.
  double seconds(Collective collective, double bytes, int group) const;
  // Until a message of so many bytes is with another rank; where nobody measured, what two ranks take to
  // gather twice as much.
  double message_seconds(double bytes) const;
  // Until each of `group` ranks, which gives so many bytes together, has what all others give it; where
  // nobody measured, what they take to gather as much. Other group sizes scale as in seconds().
  double exchange_seconds(double bytes, int group) const;

 private:
  double scaled_to(double measured, int group) const;
};

// The link that alpha and beta describe, as ring collectives among `ranks` ranks: `latency_s` a message,
// `bytes_per_s` each way. Its curves are straight between 1 KiB and 16 GiB.
Link ring_link(int ranks, double latency_s, double bytes_per_s, double contention = 0);

// Fills alpha_s, beta_s_per_byte and saturating_bytes from the all-gather's curve: 9 alpha / beta bytes take
// ten times the latency in transfer, hence 90 % of the bandwidth.
void fit(Link& link);

}  // namespace rondo::cost
