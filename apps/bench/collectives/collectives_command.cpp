// `rondo bench collectives`: reads the flags, starts the ranks, prints the table, writes the JSON.
#include <ATen/Parallel.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "apps/bench/collectives/across_hosts.h"
#include "apps/bench/collectives/openmpi_contender.h"
#include "apps/bench/collectives/sizes.h"
#include "apps/bench/collectives/tournament.h"
#include "apps/bench/commands.h"
#include "rondo/backend/context.h"
#include "rondo/backend/registry.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/collective/codec/codec.h"
#include "rondo/launch/cpu_binding.h"
#include "rondo/launch/spawn.h"

namespace rondo::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kExamples = R"(Examples:
  rondo bench collectives                                     rondo's engine, all_reduce, 2 ranks
  rondo bench collectives --peers --ranks 2,4 --json out.json next to Gloo, and to Open MPI when installed
  rondo bench collectives --operations all --sizes 4B,25MiB --dtype bfloat16
  rondo bench collectives --hosts 2 --rate 1gbit --ranks 4 --sizes 25MiB --codec none,bfloat16,int8 --peers
                                                              all_reduce between two emulated hosts (as root)
  rondo bench collectives --sizes 1MiB,25MiB --codec float16,int8 --peers   through codecs too, also over Gloo

rondo is measured with buffers in registered (shared) memory and in ordinary memory; the peers with ordinary memory. Ranks
are pinned to one processor each. p50 and minimum are of the slowest rank. "longest gap" is the longest time in which a processor
did not run us while we watched it before each line: judge lines beside large gaps with care.)";

struct Settings {
  std::vector<std::string> operations;
  std::vector<int> ranks;
  std::vector<Bytes> sizes;
  at::ScalarType dtype = at::kFloat;
  std::vector<std::string> codecs;
  bool fresh = false;
  bool peers = false;
  bool table = true;
  Effort effort;
};

std::vector<std::string> parse_operations(const std::string& text) {
  if (text == "all") return operation_names();
  std::vector<std::string> chosen = split(text, ',');
  for (const std::string& name : chosen) smallest_size(name, 1, at::kFloat);  // throws for an unknown one
  if (chosen.empty())
    throw UsageError(str("--operations: is empty; there are: ", join(operation_names(), ", ")));
  return chosen;
}

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

at::ScalarType parse_dtype(const std::string& text) {
  if (text == "float32") return at::kFloat;
  if (text == "float64") return at::kDouble;
  if (text == "float16") return at::kHalf;
  if (text == "bfloat16") return at::kBFloat16;
  throw UsageError(str("--dtype: '", text, "' is not one of float32, float64, float16, bfloat16"));
}

std::vector<std::string> parse_codecs(const std::string& text) {
  std::vector<std::string> codecs;
  for (const std::string& name : split(text, ',')) {
    collective::make_codec(name);  // throws for an unknown one
    if (name != "none") codecs.push_back(name);
  }
  return codecs;
}

// On the processors of rank r of n, and so the threads that its engines start.
void pin(int rank, int ranks) {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  const auto threads_of = launch::bind_workers(launch::cpu_layout(), launch::Binding::core, ranks);
  for (const int cpu : threads_of[static_cast<std::size_t>(rank)]) {
    CPU_SET(cpu, &mine);
  }
  if (sched_setaffinity(0, sizeof(mine), &mine) != 0) {
    throw Error(str("cannot bind rank ", rank, " to its processor: ", errno_text(errno)));
  }
}

c10::intrusive_ptr<c10d::Backend> make_peer_engine(const std::string& name, const Group& world) {
  BackendRequest request;
  request.group_name = "bench-" + name;
  request.rank = world.rank();
  request.size = world.size();
  request.world_ranks = world.ranks();
  request.store = c10::make_intrusive<c10d::PrefixStore>("bench-" + name, world.store());
  return make_backend(name, request);
}

std::vector<std::unique_ptr<Contender>> make_contenders(const Settings& settings, const Group& world) {
  std::vector<std::unique_ptr<Contender>> contenders;
  contenders.push_back(
      make_backend_contender({"rondo", "auto", "shm", true}, world.backend(), Memory::registered));
  contenders.push_back(
      make_backend_contender({"rondo", "auto", "shm", false}, world.backend(), Memory::ordinary));
  for (const std::string& codec : settings.codecs) {
    contenders.push_back(
        make_backend_contender({"rondo", "auto", "shm", false, codec}, world.backend(), Memory::ordinary));
  }
  if (!settings.peers) return contenders;
  const auto gloo = make_peer_engine("gloo", world);
  contenders.push_back(make_backend_contender({"gloo", "auto", "tcp", false}, gloo, Memory::ordinary));
  for (const std::string& codec : settings.codecs) {
    contenders.push_back(
        make_backend_contender({"rondo", "auto", "tcp", false, codec}, gloo, Memory::ordinary));
  }
  if (why_no_openmpi().empty()) contenders.push_back(make_openmpi_contender(world.rank(), world.size()));
  return contenders;
}

// One rank's part: everything for one number of ranks. Rank 0 prints, and writes its rows to `results`.
void run_rank(const Settings& settings, int rank, int ranks, int results) {
  pin(rank, ranks);
  at::set_num_threads(1);
  const Context context = init({.backend = "native"});
  const Group& world = context.world();
  const auto contenders = make_contenders(settings, world);
  Json json = Json::array();
  for (const std::string& operation : settings.operations) {
    bool heading = true;
    for (const Bytes size : settings.sizes) {
      const Bytes unit = smallest_size(operation, world.size(), settings.dtype);
      if (size < unit) continue;
      const Case what{operation, Bytes{size.count / unit.count * unit.count}, settings.dtype, settings.fresh};
      const std::vector<Row> rows = run_case(what, contenders, settings.effort, world);
      if (rank == 0) {
        for (const Row& row : rows) json.push_back(to_json(row, rows));
        if (settings.table && heading) std::cout << table_heading(rows) << "\n";
        if (settings.table) std::cout << table_line(rows) << std::endl;
      }
      heading = false;
      if (operation == "barrier") break;  // has no size
    }
  }
  if (rank != 0) return;
  const std::string text = json.dump();
  if (write(results, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    throw Error(str("cannot keep the results: ", errno_text(errno)));
  }
}

// What rank 0 of the spawned processes wrote.
Json run_ranks(const Settings& settings, int ranks) {
  const int results = memfd_create("rondo-bench-results", 0);
  if (results < 0) throw Error(str("cannot keep the results: ", errno_text(errno)));
  spawn([&](int rank) { run_rank(settings, rank, ranks, results); }, ranks);
  std::string text(static_cast<std::size_t>(lseek(results, 0, SEEK_END)), '\0');
  const ssize_t count = pread(results, text.data(), text.size(), 0);
  close(results);
  if (count != static_cast<ssize_t>(text.size())) throw Error("cannot read the results back");
  return Json::parse(text);
}

void say_who_is_missing(const Settings& settings) {
  if (!settings.peers) return;
  if (const std::string why = why_no_openmpi(); !why.empty())
    std::cerr << "without Open MPI: " << why << "\n";
  if (settings.dtype != at::kFloat) std::cerr << "without Open MPI: it is measured in float32 only\n";
}

// A result that is wrong is a failure of the run.
int finish(const Json& all, const std::string& json_target) {
  write_json(json_target, all);
  for (const auto& row : all) {
    if (!row.at("correct").get<bool>())
      throw Error("some results were wrong: WRONG in the table, \"correct\": false in the JSON");
  }
  return 0;
}

int run(const Settings& settings, const std::string& json_target) {
  say_who_is_missing(settings);
  Json all = Json::array();
  for (const int ranks : settings.ranks) {
    for (auto& row : run_ranks(settings, ranks)) all.push_back(std::move(row));
  }
  return finish(all, json_target);
}

}  // namespace

Command add_collectives(CLI::App& parent) {
  struct Flags {
    std::string operations = "all_reduce";
    std::string ranks = "2";
    std::string sizes = "4B..64MiB";
    std::string dtype = "float32";
    std::string codecs = "none";
    std::string burst = "10ms";
    std::string json;
    int hosts = 1;
    AcrossHosts across;
    Settings settings;
  };
  const auto flags = std::make_shared<Flags>();
  CLI::App* app =
      parent.add_subcommand("collectives", "Time of collectives by size, next to Gloo and Open MPI");
  app->footer(kExamples);
  app->option_defaults()->always_capture_default();
  app->add_option("--operations", flags->operations, "Operations, or all: " + join(operation_names(), ", "));
  app->add_option("--ranks", flags->ranks, "Numbers of ranks");
  app->add_option("--sizes", flags->sizes, "Sizes, and ranges in steps of four");
  app->add_option("--dtype", flags->dtype, "float32, float64, float16 or bfloat16");
  app->add_option("--codec", flags->codecs,
                  "Codecs that float32 is also all-reduced through (with --peers over Gloo too): " +
                      join(collective::codec_names(), ", "));
  app->add_flag("--fresh", flags->settings.fresh,
                "Write the data before each operation; four sets of buffers in rotation");
  app->add_flag("--peers", flags->settings.peers,
                "Measure Gloo, and Open MPI when installed, in the same run");
  app->add_option("--hosts", flags->hosts,
                  "2: between two hosts emulated on this machine (all_reduce, float32; needs root)")
      ->check(CLI::Range(1, 2));
  app->add_option("--rate", flags->across.rate, "With --hosts 2: rate of the link, as tc writes it");
  app->add_option("--hierarchical", flags->across.options,
                  "With --hosts 2: options of the hierarchical engine, as in lanes=1,chunk=512KiB");
  app->add_option("--bursts", flags->settings.effort.bursts, "Turns of each system")
      ->check(CLI::Range(1, 1000));
  app->add_option("--burst-time", flags->burst, "Length of a turn");
  app->add_option("--json", flags->json, "Write the results to FILE, or '-' for standard output");
  return {app, [flags] {
            Settings& settings = flags->settings;
            settings.operations = parse_operations(flags->operations);
            settings.ranks = parse_ranks(flags->ranks);
            settings.sizes = parse_sizes(flags->sizes);
            settings.dtype = parse_dtype(flags->dtype);
            settings.codecs = parse_codecs(flags->codecs);
            settings.effort.burst = parse_duration(flags->burst, "--burst-time");
            settings.table = flags->json != "-";
            if (flags->hosts == 1) return run(settings, flags->json);
            AcrossHosts& across = flags->across;
            across.sizes = settings.sizes;
            across.codecs = split(flags->codecs, ',');
            across.peers = settings.peers;
            across.rounds = settings.effort.bursts;
            across.table = settings.table;
            Json all = Json::array();
            for (const int ranks : settings.ranks) {
              across.ranks = ranks;
              for (auto& row : run_across_hosts(across)) all.push_back(std::move(row));
            }
            return finish(all, flags->json);
          }};
}

}  // namespace rondo::bench
