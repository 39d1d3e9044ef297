#include "apps/bench/collectives/across_hosts.h"

#include <ATen/Parallel.h>
#include <sys/mman.h>
#include <torch/types.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "apps/bench/collectives/contender.h"
#include "apps/bench/collectives/gaps.h"
#include "apps/bench/emulated_hosts.h"
#include "rondo/backend/collectives.h"
#include "rondo/backend/context.h"
#include "rondo/backend/memory/registered_memory.h"
#include "rondo/backend/registry.h"
#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"
#include "rondo/collective/codec/codec.h"
#include "rondo/launch/spawn.h"

namespace rondo::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kHosts = 2;

// One system in one order of ranks.
struct Competitor {
  std::string system;
  std::string codec;
  std::string order;
  c10::intrusive_ptr<c10d::Backend> backend;
  at::Tensor buffer;
  std::vector<double> samples;
  bool correct = false;
};

int host_of(int rank, int ranks) { return EmulatedHosts::host_of(rank, ranks, kHosts); }

// World ranks in the order in which a group numbers them.
std::vector<int> ranks_in_order(const std::string& order, int ranks) {
  std::vector<int> all;
  for (int i = 0; i < ranks; ++i)
    all.push_back(order == "by host" ? i : i / kHosts + i % kHosts * (ranks / kHosts));
  return all;
}

c10::intrusive_ptr<c10d::Backend> make_engine(const std::string& name, const std::string& order,
                                              const Group& world, bool deterministic = false) {
  BackendRequest request;
  request.deterministic = deterministic;
  request.group_name = str(name, " ", order);
  request.world_ranks = ranks_in_order(order, world.size());
  request.size = world.size();
  for (int i = 0; i < world.size(); ++i) {
    const int rank = request.world_ranks[static_cast<std::size_t>(i)];
    if (rank == world.rank()) request.rank = i;
    request.hosts.push_back(str("host ", host_of(rank, world.size())));
    request.host_names.push_back(request.hosts.back());
  }
  request.store = c10::make_intrusive<c10d::PrefixStore>(request.group_name, world.store());
  return make_backend(name, request);
}

std::vector<Competitor> make_competitors(const AcrossHosts& settings, const Group& world) {
  std::vector<Competitor> competitors;
  for (const std::string order : {"by host", "in turns"}) {
    for (const std::string& codec : settings.codecs) {
      const std::string options = settings.options.empty() ? "" : ", " + settings.options;
      competitors.push_back({"rondo",
                             codec,
                             order,
                             make_engine(str("hierarchical(native, gloo, codec=", codec, options, ")"), order,
                                         world, settings.deterministic),
                             {},
                             {},
                             false});
    }
    if (settings.peers)
      competitors.push_back({"gloo", "none", order, make_engine("gloo", order, world), {}, {}, false});
  }
  return competitors;
}

// Numbers that differ by rank and place; between -1 and 1.
at::Tensor pattern(int rank, std::int64_t elements) {
  return torch::arange(elements, torch::kFloat).mul(0.37F + 0.11F * static_cast<float>(rank)).sin();
}

bool check(Competitor& competitor, int ranks) {
  const std::int64_t elements = competitor.buffer.numel();
  competitor.buffer.copy_(pattern(competitor.backend->getRank(), elements));
  at::Tensor expected = pattern(0, elements);
  for (int rank = 1; rank < ranks; ++rank) expected += pattern(rank, elements);
  std::vector<at::Tensor> tensors = {competitor.buffer};
  competitor.backend->allreduce(tensors)->wait();
  // Each host's sum is encoded once.
  const double per_host = static_cast<double>(ranks) / kHosts;
  const double allowed = 1e-4 + kHosts * collective::make_codec(competitor.codec)->error_bound(per_host);
  const bool right = (competitor.buffer - expected).abs().max().item<double>() <= allowed;
  competitor.buffer.fill_(0.5F);
  return right;
}

double time_one(Competitor& competitor, const Group& world) {
  barrier(world);
  std::vector<at::Tensor> tensors = {competitor.buffer};
  const long long start = monotonic_ns();
  competitor.backend->allreduce(tensors)->wait();
  return static_cast<double>(monotonic_ns() - start) / 1e3;
}

double slowest(double value, const Group& world) {
  at::Tensor tensor = torch::tensor({value}, torch::kDouble);
  all_reduce(tensor, world, ReduceOp::MAX);
  return tensor.item<double>();
}

Json row_of(const Competitor& competitor, const AcrossHosts& settings, Bytes bytes, const Gaps& gaps) {
  const Timing timing = summarize(competitor.samples);
  const double algorithm = static_cast<double>(bytes.count) / timing.p50_us / 1e3;
  return {{"system", competitor.system},
          {"operation", "all_reduce"},
          {"algorithm", competitor.system == "rondo" ? "hierarchical" : "auto"},
          {"channel", "tcp"},
          {"registered", competitor.system == "rondo"},
          {"fresh", false},
          {"ranks", settings.ranks},
          {"hosts", kHosts},
          {"rate", settings.rate},
          {"rank_order", competitor.order},
          {"dtype", "float32"},
          {"codec", competitor.codec},
          {"bytes", bytes.count},
          {"p50_us", timing.p50_us},
          {"min_us", timing.min_us},
          {"algbw_gbps", algorithm},
          {"busbw_gbps", algorithm * 2 * (settings.ranks - 1) / settings.ranks},
          {"correct", competitor.correct},
          {"chosen", true},
          {"samples", timing.samples},
          {"longest_gap_us", gaps.longest_us},
          {"lost_time", gaps.lost}};
}

void run_rank(const AcrossHosts& settings, const EmulatedHosts& hosts, int rank, int results) {
  const int host = host_of(rank, settings.ranks);
  hosts.enter(host);
  setenv("GLOO_SOCKET_IFNAME", EmulatedHosts::interface(host).c_str(), 1);
  at::set_num_threads(1);
  const Context context = init({.host = str("host ", host)});
  const Group& world = context.world();
  std::vector<Competitor> competitors = make_competitors(settings, world);
  Json json = Json::array();
  for (const Bytes bytes : settings.sizes) {
    const auto elements = static_cast<std::int64_t>(bytes.count / sizeof(float));
    for (Competitor& competitor : competitors) {
      competitor.samples.clear();
      competitor.buffer = competitor.system == "rondo" ? empty_registered({elements}, torch::kFloat)
                                                       : torch::empty({elements}, torch::kFloat);
      competitor.correct = slowest(check(competitor, settings.ranks) ? 0 : 1, world) == 0;
      time_one(competitor, world);  // warms up
    }
    const Gaps gaps = watch_for_gaps(std::chrono::milliseconds(10));
    for (int round = 0; round < settings.rounds; ++round) {
      for (Competitor& competitor : competitors)
        competitor.samples.push_back(slowest(time_one(competitor, world), world));
    }
    for (const Competitor& competitor : competitors) {
      json.push_back(row_of(competitor, settings, bytes, gaps));
      if (rank != 0 || !settings.table) continue;
      const Json& row = json.back();
      std::printf("%10s  %-6s %-10s ranks %-9s p50 %9.1f ms  min %9.1f ms%s\n", to_string(bytes).c_str(),
                  competitor.system.c_str(), competitor.codec.c_str(), competitor.order.c_str(),
                  row.at("p50_us").get<double>() / 1e3, row.at("min_us").get<double>() / 1e3,
                  competitor.correct ? "" : "  WRONG");
      std::fflush(stdout);
    }
  }
  if (rank != 0) return;
  const std::string text = json.dump();
  if (write(results, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    throw Error(str("cannot keep the results: ", errno_text(errno)));
}

}  // namespace

Json run_across_hosts(const AcrossHosts& settings) {
  if (settings.ranks % kHosts != 0 || settings.ranks < kHosts)
    throw UsageError(str("--ranks ", settings.ranks, " does not divide among ", kHosts, " hosts"));
  for (const std::string& codec : settings.codecs) collective::make_codec(codec);
  const EmulatedHosts hosts(kHosts, settings.rate);
  const int results = memfd_create("rondo-bench-results", 0);
  if (results < 0) throw Error(str("cannot keep the results: ", errno_text(errno)));
  if (settings.table)
    std::printf("\nall_reduce, float32, %d ranks on %d hosts, %s\n", settings.ranks, kHosts,
                settings.rate.c_str());
  std::fflush(stdout);
  spawn([&](int rank) { run_rank(settings, hosts, rank, results); }, settings.ranks);
  std::string text(static_cast<std::size_t>(lseek(results, 0, SEEK_END)), '\0');
  const ssize_t count = pread(results, text.data(), text.size(), 0);
  close(results);
  if (count != static_cast<ssize_t>(text.size())) throw Error("cannot read the results back");
  return parse_json_strict(text, "the results of rank 0");
}

}  // namespace rondo::bench
