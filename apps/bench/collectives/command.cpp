// `rondo bench collectives`: the time of collectives, compared with peers; printed
// schedules.
#include <unistd.h>

#include <cerrno>
#include <iostream>

#include "apps/bench/collectives/collectives.h"
#include "apps/bench/commands.h"
#include "apps/report/page.h"
#include "rondo/base/error.h"
#include "rondo/base/file_access.h"
#include "rondo/base/text.h"
#include "rondo/collective/algorithms/registry.h"
#include "rondo/collective/codec/codec.h"
#include "rondo/format/run_directory.h"
#include "rondo/precision/options.h"

namespace rondo::bench {
namespace {

constexpr const char* kCollectivesExamples = R"(Examples:
  rondo bench collectives                                     # rondo's engine, all_reduce, 2 ranks
  rondo bench collectives --peers --ranks 2,4 --json out.json  # next to Gloo, and to Open MPI when installed
  rondo bench collectives --operations all --sizes 4B,25MiB --dtype bfloat16
  rondo bench collectives --algorithm all --channel shm,tcp   # every algorithm, beside the engine
  rondo bench collectives --explain ring --ranks 4            # what each rank sends, receives and adds, and when
  rondo bench collectives --hosts 2 --rate 1gbit --ranks 4 --sizes 25MiB --codec none,bfloat16,int8 --peers
                                                              # all_reduce between two emulated hosts (as root)
  rondo bench collectives --sizes 1MiB,25MiB --codec float16,int8 --peers   # through codecs too, also over Gloo

rondo is measured with buffers in registered (shared) memory and in ordinary memory; the peers with ordinary memory. Ranks
are pinned to one processor each. p50 and minimum are of the slowest rank. "longest gap" is the longest time for which
the benchmark lost its processor before a line: lines with large gaps are less reliable.)";

std::vector<int> parse_ranks(const std::string& text) {
  std::vector<int> ranks;
  for (const std::string& part : split(text, ',')) {
    const long long count = parse_integer(part, "--ranks");
    if (count < 1 || count > 64) throw UsageError(str("--ranks: '", part, "' is not between 1 and 64"));
    ranks.push_back(static_cast<int>(count));
  }
  if (ranks.empty()) throw UsageError("--ranks: is empty; write for example 2,4");
  return ranks;
}

// Parses sizes. "4B..64MiB" is every power of four times the first size up to the last, included; "4B,25MiB"
// is a list. Both forms mix: "4B..1MiB,25MiB".
std::vector<Bytes> parse_sizes(const std::string& text) {
  std::vector<Bytes> sizes;
  for (const std::string& part : split(text, ',')) {
    const std::size_t dots = part.find("..");
    if (dots == std::string::npos) {
      sizes.push_back(parse_bytes(part, "--sizes"));
      continue;
    }
    const Bytes first = parse_bytes(part.substr(0, dots), "--sizes");
    const Bytes last = parse_bytes(part.substr(dots + 2), "--sizes");
    if (first.count == 0 || first > last) {
      throw UsageError(str("--sizes: '", part, "' is no range; write for example 4B..64MiB"));
    }
    for (Bytes size = first; size < last; size.count *= 4) sizes.push_back(size);
    sizes.push_back(last);
  }
  if (sizes.empty()) throw UsageError("--sizes: is empty; write for example 4B..64MiB or 4B,64KiB,25MiB");
  if (std::any_of(sizes.begin(), sizes.end(), [](Bytes size) { return size.count == 0 || size > GiB(4); })) {
    throw UsageError(str("--sizes: '", text, "' has a size that is not between 1 B and 4 GiB"));
  }
  return sizes;
}

// Throws UsageError that names the flag and the known names.
std::vector<std::string> parse_names(const std::string& text, const char* flag,
                                     const std::vector<std::string>& known) {
  std::vector<std::string> chosen = split(text, ',');
  if (chosen.empty()) throw UsageError(str(flag, ": is empty; there are: ", join(known, ", ")));
  for (const std::string& name : chosen) {
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw UsageError(str(flag, ": '", name, "' is not one of ", join(known, ", ")));
  }
  return chosen;
}

std::vector<std::string> parse_codecs(const std::string& text) {
  std::vector<std::string> codecs;
  for (const std::string& name : split(text, ',')) {
    collective::make_codec(name);  // throws for an unknown one
    if (name != "none") codecs.push_back(name);
  }
  return codecs;
}

// Parses "mpich=/path/of/launcher".
MpiPeer parse_mpi_peer(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    throw UsageError(str("--mpi: '", text, "' is not NAME=LAUNCHER"));
  MpiPeer peer{text.substr(0, equals), text.substr(equals + 1)};
  if (access(peer.launcher.c_str(), X_OK) != 0)
    throw UsageError(str("--mpi: ", peer.launcher, " is not a program: ", errno_text(errno)));
  return peer;
}

void say_who_is_missing(const CollectivesSettings& settings) {
  if (!settings.peers) return;
  if (const std::string why = why_no_openmpi(); !why.empty())
    std::cerr << "skipping Open MPI: " << why << "\n";
  if (settings.dtype != at::kFloat) std::cerr << "skipping Open MPI: it is measured in float32 only\n";
}

// Rejects an operation that none of the named algorithms has: the run would only measure the engine.
void require_algorithms_for(const CollectivesSettings& settings) {
  for (const std::string& name : settings.algorithms) {
    const collective::Algorithm& algorithm = collective::find_algorithm(name);
    std::vector<std::string> has;
    for (const OperationKind operation : algorithm.operations) has.emplace_back(rondo::name(operation));
    for (const std::string& operation : settings.operations) {
      if (settings.algorithms.size() > 1 || std::find(has.begin(), has.end(), operation) != has.end())
        continue;
      throw UsageError(str("--algorithm: ", name, " has no ", operation, "; it has: ", join(has, ", ")));
    }
  }
}

// Returns the options that the user gave, in command-line form.
std::vector<std::string> given_options(const CLI::App& app) {
  std::vector<std::string> words{app.get_name()};
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0) continue;
    words.push_back(option->get_name());
    if (option->get_items_expected_max() == 0) continue;  // a flag
    for (const std::string& value : option->results()) words.push_back(value);
  }
  return words;
}

// Returns a schedule instead of measurements; prints it as a table, and writes a page with the command line
// in its header.
Json explain(const ScheduleChoice& choice, bool prints, const std::string& page,
             const std::vector<std::string>& arguments) {
  if (prints) std::cout << explain_as_text(choice);
  Json document = explain_as_json(choice);
  if (page.empty()) return document;
  write_output(page, make_page({{"title", str(choice.algorithm, " ", choice.operation)},
                                {"schedule", document},
                                {"made_by", to_json(make_provenance("rondo bench", arguments))}}));
  return document;
}

struct CollectivesFlags {
  CLI::App* app = nullptr;
  std::string operations = "all_reduce";
  std::string ranks = "2";
  std::string sizes = "4B..64MiB";
  std::string dtype = "float32";
  std::string codecs = "none";
  std::string burst = "10ms";
  std::string algorithms;
  std::string channels = "shm";
  std::string page;
  std::string rate = "1gbit";
  std::string hierarchical;  // the engine's options
  std::vector<std::string> mpi_peers;
  ScheduleChoice schedule;
  CollectivesSettings settings;

  bool has(const char* flag) const { return app->get_option(flag)->count() > 0; }
};

Json explain_schedule(CollectivesFlags& flags, bool prints) {
  const CollectivesSettings& settings = flags.settings;
  ScheduleChoice& schedule = flags.schedule;
  schedule.operation = flags.operations;
  schedule.ranks = settings.ranks.front();
  schedule.hosts = settings.hosts;
  schedule.bytes = flags.has("--sizes") ? parse_sizes(flags.sizes).front()
                                        : KiB(16 * static_cast<std::uint64_t>(schedule.ranks));
  schedule.dtype = flags.dtype;
  schedule.in_rank_order = settings.deterministic;
  schedule.element_bytes = c10::elementSize(settings.dtype);
  return explain(schedule, prints, flags.page, given_options(*flags.app));
}

Json run_collectives(CollectivesFlags& flags, bool prints) {
  CollectivesSettings& settings = flags.settings;
  settings.table = prints;
  settings.ranks = parse_ranks(flags.ranks);
  settings.dtype = parse_float_dtype(flags.dtype, "--dtype:");
  for (const int ranks : settings.ranks) spread_over_hosts(ranks, settings.hosts);
  if (!flags.schedule.algorithm.empty()) return explain_schedule(flags, prints);
  settings.operations = flags.operations == "all"
                            ? operation_names()
                            : parse_names(flags.operations, "--operations", operation_names());
  settings.sizes = parse_sizes(flags.sizes);
  settings.channels = parse_names(flags.channels, "--channel", {"threads", "shm", "tcp"});
  if (flags.algorithms == "all") settings.algorithms = collective::algorithm_names();
  if (!flags.algorithms.empty() && flags.algorithms != "all")
    settings.algorithms = parse_names(flags.algorithms, "--algorithm", collective::algorithm_names());
  require_algorithms_for(settings);
  settings.codecs = parse_codecs(flags.codecs);
  for (const std::string& peer : flags.mpi_peers) settings.mpi_peers.push_back(parse_mpi_peer(peer));
  settings.effort.burst = parse_duration(flags.burst, "--burst-time");
  if (settings.hosts > 2 && settings.algorithms.empty())
    throw UsageError("--hosts: 1 or 2, or more with --explain or --algorithm");
  if (settings.hosts == 2 && settings.algorithms.empty())
    return measure_across_hosts(settings, flags.rate, flags.hierarchical);
  say_who_is_missing(settings);
  return measure_collectives(settings);
}

void add_collectives_flags(CLI::App& app, CollectivesFlags& flags) {
  CollectivesSettings& settings = flags.settings;
  flags.app = &app;
  app.add_option("--operations,--operation", flags.operations,
                 "Operations, or all: " + join(operation_names(), ", "));
  app.add_option("--ranks", flags.ranks, "Numbers of ranks, such as 2,4");
  app.add_option("--sizes,--bytes", flags.sizes, "Sizes, and ranges in factors of four, such as 4B..64MiB");
  app.add_option("--dtype", flags.dtype, "float32, float64, float16 or bfloat16");
  app.add_option("--codec", flags.codecs,
                 "Also measure all_reduce of float32 with these codecs (with --peers over Gloo too): " +
                     join(collective::codec_names(), ", "));
  app.add_flag("--fresh", settings.fresh, "Write the buffers before each operation, rotating over four sets");
  app.add_flag("--peers", settings.peers, "Measure Gloo, and Open MPI when installed, in the same run");
  app.add_option("--mpi", flags.mpi_peers,
                 "Also measure the MPI that `LAUNCHER RANKS FOLDER` starts (NAME=LAUNCHER, repeatable; "
                 "bench/best_mpi.py makes launchers)");
  app.add_option("--algorithm", flags.algorithms,
                 "Also run these schedules, or all: " + join(collective::algorithm_names(), ", "));
  app.add_option("--channel", flags.channels, "Transport of the schedules: threads, shm or tcp");
  app.add_option("--hosts", settings.hosts,
                 "Hosts for --explain or --algorithm; otherwise 2: all_reduce between two emulated hosts "
                 "(needs root)")
      ->check(between(1, 64));
  app.add_flag("--deterministic", settings.deterministic,
               "Sum in rank order, independent of algorithm and hosts");
  CLI::Option* explained =
      app.add_option("--explain", flags.schedule.algorithm,
                     "Print the steps of an algorithm for one number of ranks instead of measuring");
  app.add_option("--root", flags.schedule.root, "With --explain: root of broadcast and reduce")
      ->needs(explained);
  app.add_option("--rows", flags.schedule.rows,
                 "With --explain torus_2d: rows of the grid; 0: as square as possible")
      ->needs(explained);
  app.add_option("--html", flags.page, "With --explain: write a page that draws the steps")->needs(explained);
  app.add_option("--rate", flags.rate, "With --hosts 2: link rate in tc's notation, such as 1gbit");
  app.add_option(
      "--hierarchical", flags.hierarchical,
      "With --hosts 2: options of the hierarchical engine, such as inter_host_ranks=1,chunk=512KiB");
  add_turns_flag(app, "--bursts", settings.effort.bursts, "Turns of each system");
  app.add_option("--burst-time", flags.burst, "Length of a turn");
}

}  // namespace

Command add_collectives(CLI::App& parent) {
  return add_benchmark<CollectivesFlags>(
      parent, {"collectives", "Time of collectives by size, next to Gloo and Open MPI", kCollectivesExamples},
      add_collectives_flags, run_collectives);
}

}  // namespace rondo::bench
