#include <iomanip>
#include <sstream>

#include "apps/bench/collectives/collectives.h"
#include "rondo/base/text.h"
#include "rondo/precision/options.h"

namespace rondo::bench {
namespace {

constexpr int kColumn = 20;  // at least; a title may be longer

std::string title(const Labels& labels) {
  if (labels.system != "rondo")
    return labels.system + (labels.rank_order.empty() ? "" : ", " + labels.rank_order);
  if (!labels.rank_order.empty()) return labels.codec + ", " + labels.rank_order;
  if (labels.codec != "none") return labels.codec + (labels.channel == "tcp" ? " on gloo" : "");
  if (labels.algorithm != "auto") return labels.algorithm + " " + labels.channel;
  if (!labels.registered) return "rondo";
  return labels.direct ? "rondo (registered)" : "(registered, Work)";
}

int width_of(const Row& row) { return std::max(kColumn, static_cast<int>(title(row.labels).size()) + 2); }

std::string microseconds(double us) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(us < 10 ? 2 : us < 1000 ? 1 : 0) << us;
  return out.str();
}

// Calls `use` for the rows of other systems than rondo.
template <class Use>
void for_each_peer(const std::vector<Row>& rows, Use use) {
  for (const Row& row : rows) {
    if (row.labels.system != "rondo") use(row);
  }
}

PeerRatio speedup(const Row& row, const Row& peer) {
  return peer_ratio({row.timing.p50_us, row.timing.min_us}, {peer.timing.p50_us, peer.timing.min_us});
}

// Returns 10^9 useful bytes per second.
double algorithm_bandwidth(const Row& row) {
  if (row.what.operation == "barrier" || row.timing.p50_us <= 0) return 0;
  return static_cast<double>(row.what.bytes.count) / row.timing.p50_us / 1e3;
}

}  // namespace

Json to_json(const Row& row, const std::vector<Row>& same_case) {
  Json json = {
      {"system", row.labels.system},
      {"operation", row.what.operation},
      {"algorithm", row.labels.algorithm},
      {"channel", row.labels.channel},
      {"registered", row.labels.registered},
      {"call", row.labels.direct && row.what.operation == "all_reduce" ? "direct" : "work"},
      {"fresh", row.what.fresh},
      {"ranks", row.ranks},
      {"hosts", 1},
      {"dtype", float_dtype_name(row.what.dtype)},
      {"codec", row.labels.codec},
      {"bytes", row.what.bytes.count},
      {"p50_us", row.timing.p50_us},
      {"min_us", row.timing.min_us},
      {"algbw_gbps", algorithm_bandwidth(row)},
      {"busbw_gbps", algorithm_bandwidth(row) * bus_factor(row.what.operation, row.ranks)},
      {"correct", row.correct},
      {"samples", row.timing.samples},
      {"longest_gap_us", row.gaps.longest_us},
      {"lost_time", row.gaps.lost},
  };
  if (!row.labels.rank_order.empty()) json["rank_order"] = row.labels.rank_order;
  if (row.labels.system == "rondo") {
    for_each_peer(same_case, [&](const Row& peer) {
      const PeerRatio ratio = speedup(row, peer);
      json["speedup_over_" + peer.labels.system] = ratio.value;
      json["speedup_over_" + peer.labels.system + "_by"] = ratio.of_minima ? "min" : "p50";
    });
  }
  return json;
}

std::string table_heading(const std::vector<Row>& same_case) {
  const Row& first = same_case.front();
  std::ostringstream out;
  out << "\n"
      << first.what.operation << ", " << first.ranks << " ranks, " << float_dtype_name(first.what.dtype)
      << (first.what.fresh ? ", data just written" : "") << ": p50 / minimum in us\n"
      << std::setw(10) << "size";
  for (const Row& row : same_case) out << std::setw(width_of(row)) << title(row.labels);
  for_each_peer(same_case,
                [&](const Row& peer) { out << std::setw(kColumn) << "faster than " + peer.labels.system; });
  out << std::setw(16) << "longest gap";
  return out.str();
}

std::string table_line(const std::vector<Row>& same_case) {
  std::ostringstream out;
  out << std::setw(10) << to_string(same_case.front().what.bytes);
  for (const Row& row : same_case) {
    out << std::setw(width_of(row))
        << microseconds(row.timing.p50_us) + " / " + microseconds(row.timing.min_us) +
               (row.correct ? "" : " WRONG");
  }
  // For rondo's rows, both kinds of memory: "registered, ordinary".
  for_each_peer(same_case, [&](const Row& peer) {
    std::vector<std::string> factors;
    for (const Row& row : same_case) {
      // Counts only rondo's engine in its shortest call.
      const bool counts = row.labels.system == "rondo" && row.labels.algorithm == "auto" &&
                          row.labels.codec == "none" && (row.labels.direct || !row.labels.registered);
      if (counts) factors.push_back(to_string(speedup(row, peer)));
    }
    out << std::setw(kColumn) << join(factors, ", ");
  });
  out << std::setw(16) << microseconds(same_case.front().gaps.longest_us);
  return out.str();
}

std::string table_footing(const std::vector<Row>& same_case) {
  std::string footing;
  for_each_peer(same_case, [&](const Row&) { footing = str(kPeerRatioRule, "\n"); });
  return footing;
}

}  // namespace rondo::bench
