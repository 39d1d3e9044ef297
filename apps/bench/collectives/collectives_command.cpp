// `rondo bench collectives`: reads the flags, starts the ranks, prints the table, writes the JSON.
#include <ATen/Parallel.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fstream>
#include <iostream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "apps/bench/collectives/across_hosts.h"
#include "apps/bench/collectives/explain.h"
#include "apps/bench/collectives/openmpi_contender.h"
#include "apps/bench/collectives/plan_contender.h"
#include "apps/bench/collectives/sizes.h"
#include "apps/bench/collectives/tournament.h"
#include "apps/bench/collectives/tune.h"
#include "apps/bench/commands.h"
#include "apps/common/flag_checks.h"
#include "apps/common/result_flags.h"
#include "apps/report/page.h"
#include "rondo/backend/context.h"
#include "rondo/backend/engine/store_adapter.h"
#include "rondo/backend/point_to_point_channel.h"
#include "rondo/backend/registry.h"
#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/output.h"
#include "rondo/base/text.h"
#include "rondo/channel/shared_memory_channel.h"
#include "rondo/channel/thread_channel.h"
#include "rondo/collective/algorithms/registry.h"
#include "rondo/collective/chooser/tuning.h"
#include "rondo/collective/codec/codec.h"
#include "rondo/format/provenance.h"
#include "rondo/launch/cpu_binding.h"
#include "rondo/launch/spawn.h"

namespace rondo::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kCollectivesExamples = R"(Examples:
  rondo bench collectives                                     rondo's engine, all_reduce, 2 ranks
  rondo bench collectives --peers --ranks 2,4 --json out.json next to Gloo, and to Open MPI when installed
  rondo bench collectives --operations all --sizes 4B,25MiB --dtype bfloat16
  rondo bench collectives --algorithm all --channel shm,tcp   every algorithm, beside the engine
  rondo bench collectives --check-chooser --ranks 2,4         are its picks within 10 % of the best?
  rondo bench collectives --explain ring --ranks 4            what each rank sends, receives and adds, and when
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
  // Plans to run beside the engine, each over each channel.
  std::vector<std::string> algorithms;
  std::vector<std::string> channels;
  int hosts = 1;  // that plans are made for
  bool tune = false;
  bool check_chooser = false;  // measure again after tuning
  bool deterministic = false;

  bool uses(const std::string& channel) const {
    return std::find(channels.begin(), channels.end(), channel) != channels.end();
  }
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

c10::intrusive_ptr<c10d::Backend> make_peer_engine(const std::string& name, const Group& world,
                                                   const std::string& purpose = "peer") {
  BackendRequest request;
  request.group_name = str("bench-", name, "-", purpose);
  request.rank = world.rank();
  request.size = world.size();
  request.world_ranks = world.ranks();
  request.store = c10::make_intrusive<c10d::PrefixStore>(request.group_name, world.store());
  return make_backend(name, request);
}

std::shared_ptr<Channel> make_channel(const std::string& name, const Group& world, const ThreadMesh* mesh) {
  if (name == "threads") return mesh->connect(world.rank());
  const auto store = std::make_shared<StoreFromC10d>(world.store());
  const Duration timeout = std::chrono::minutes(5);
  if (name == "shm") {
    return std::make_shared<SharedMemoryChannel>(
        *store, SharedMemoryChannel::Options{"bench", world.rank(), world.size(), timeout});
  }
  return std::make_shared<PointToPointChannel>(make_peer_engine("gloo", world, "plans"), store, "bench-tcp",
                                               timeout);
}

// What the chooser picks from, each as a user of the group gets it: the engine, and every algorithm behind
// the same calls and on the same memory.
std::vector<std::unique_ptr<Contender>> make_candidates(const Settings& settings, const Group& world) {
  std::vector<std::unique_ptr<Contender>> candidates;
  const auto add = [&](const std::string& choice, const std::string& label, auto can) {
    setenv("RONDO_ALGORITHM", choice.c_str(), 1);
    const auto backend = make_peer_engine("native", world, choice);
    unsetenv("RONDO_ALGORITHM");
    candidates.push_back(
        make_exercise_contender({"rondo", label, "shm", true, true}, can, [backend](const Case& what) {
          return make_exercise(what.operation, backend, what.bytes, what.dtype, Memory::registered,
                               /*direct=*/true);
        }));
  };
  add(collective::kEngine, "auto", [](const Case&) { return true; });
  for (const std::string& algorithm : settings.algorithms) {
    add(algorithm, algorithm, [algorithm](const Case& what) {
      const auto& operations = collective::find_algorithm(algorithm).operations;
      return std::any_of(operations.begin(), operations.end(),
                         [&](OperationKind operation) { return what.operation == name(operation); });
    });
  }
  return candidates;
}

// `mesh` is null where ranks are processes.
std::vector<std::unique_ptr<Contender>> make_contenders(const Settings& settings, const Group& world,
                                                        const ThreadMesh* mesh) {
  if (settings.tune && mesh == nullptr) return make_candidates(settings, world);
  std::vector<std::unique_ptr<Contender>> contenders;
  const std::string memory = mesh != nullptr ? "threads" : "shm";
  contenders.push_back(
      make_backend_contender({"rondo", "auto", memory, true, true}, world.backend(), Memory::registered));
  contenders.push_back(
      make_backend_contender({"rondo", "auto", memory, true, false}, world.backend(), Memory::registered));
  contenders.push_back(
      make_backend_contender({"rondo", "auto", memory, false, true}, world.backend(), Memory::ordinary));
  for (const std::string& codec : settings.codecs) {
    contenders.push_back(make_backend_contender({"rondo", "auto", memory, false, false, codec},
                                                world.backend(), Memory::ordinary));
  }
  for (const std::string& name : settings.channels) {
    if (settings.algorithms.empty() || (name == "threads") != (mesh != nullptr)) continue;
    const std::shared_ptr<Channel> channel = make_channel(name, world, mesh);
    for (const std::string& algorithm : settings.algorithms) {
      contenders.push_back(make_plan_contender(
          algorithm, name, channel, spread_over_hosts(world.size(), settings.hosts), settings.deterministic));
    }
  }
  if (!settings.peers || mesh != nullptr) return contenders;
  const auto gloo = make_peer_engine("gloo", world);
  contenders.push_back(make_backend_contender({"gloo", "auto", "tcp", false}, gloo, Memory::ordinary));
  for (const std::string& codec : settings.codecs) {
    contenders.push_back(
        make_backend_contender({"rondo", "auto", "tcp", false, false, codec}, gloo, Memory::ordinary));
  }
  if (why_no_openmpi().empty()) contenders.push_back(make_openmpi_contender(world.rank(), world.size()));
  return contenders;
}

// One rank's part: everything for one number of ranks. Rank 0 prints, and returns the rows.
Json run_rank(const Settings& settings, const Context& context, const ThreadMesh* mesh) {
  const Group& world = context.world();
  const int rank = world.rank();
  const auto contenders = make_contenders(settings, world, mesh);
  Json json = Json::array();
  for (const std::string& operation : settings.operations) {
    bool heading = true;
    std::string footing;
    for (const Bytes size : settings.sizes) {
      const Bytes unit = smallest_size(operation, world.size(), settings.dtype);
      if (size < unit) continue;
      const Case what{operation, Bytes{size.count / unit.count * unit.count}, settings.dtype, settings.fresh};
      const std::vector<Row> rows = run_case(what, contenders, settings.effort, world);
      if (rank == 0) {
        for (const Row& row : rows) json.push_back(to_json(row, rows));
        if (settings.table && heading) std::cout << table_heading(rows) << "\n";
        if (settings.table) std::cout << table_line(rows) << std::endl;
        footing = table_footing(rows);
      }
      heading = false;
      if (operation == "barrier") break;  // has no size
    }
    if (rank == 0 && settings.table) std::cout << footing << std::flush;
  }
  return json;
}

// Ranks as processes. What rank 0 found comes back through a file without a name.
Json run_processes(const Settings& settings, int ranks) {
  const int results = memfd_create("rondo-bench-results", 0);
  if (results < 0) throw Error(str("cannot keep the results: ", errno_text(errno)));
  spawn(
      [&](int rank) {
        pin(rank, ranks);
        at::set_num_threads(1);
        const Context context = init({.backend = "native", .deterministic = settings.deterministic});
        const std::string text = run_rank(settings, context, nullptr).dump();
        if (rank == 0 && write(results, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
          throw Error(str("cannot keep the results: ", errno_text(errno)));
        }
      },
      ranks);
  std::string text(static_cast<std::size_t>(lseek(results, 0, SEEK_END)), '\0');
  const ssize_t count = pread(results, text.data(), text.size(), 0);
  close(results);
  if (count != static_cast<ssize_t>(text.size())) throw Error("cannot read the results back");
  return parse_json_strict(text, "the results of rank 0");
}

// Ranks as threads of this process, for plans over the channel between threads.
Json run_threads(const Settings& settings, int ranks) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const ThreadMesh mesh(ranks);
  std::mutex mutex;  // protects first and rows
  std::exception_ptr first;
  Json rows;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        pin(rank, ranks);
        at::set_num_threads(1);
        const Context context = init({.backend = "native",
                                      .rank = rank,
                                      .world_size = ranks,
                                      .local_rank = rank,
                                      .store = store,
                                      .deterministic = settings.deterministic});
        Json mine = run_rank(settings, context, &mesh);
        const std::lock_guard lock(mutex);
        if (rank == 0) rows = std::move(mine);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
  return rows;
}

void say_who_is_missing(const Settings& settings) {
  if (!settings.peers) return;
  if (const std::string why = why_no_openmpi(); !why.empty())
    std::cerr << "without Open MPI: " << why << "\n";
  if (settings.dtype != at::kFloat) std::cerr << "without Open MPI: it is measured in float32 only\n";
}

// An operation that none of the named algorithms has would only measure the engine.
void require_algorithms_for(const Settings& settings) {
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

Json measure(const Settings& settings) {
  Json all = Json::array();
  for (const int ranks : settings.ranks) {
    if (settings.uses("shm") || settings.uses("tcp")) {
      for (auto& row : run_processes(settings, ranks)) all.push_back(std::move(row));
    }
    if (settings.uses("threads")) {
      for (auto& row : run_threads(settings, ranks)) all.push_back(std::move(row));
    }
  }
  return all;
}

// What to measure again before anything but the engine is picked.
Settings doubtful_part(const Settings& settings, const collective::Tuning& tuning) {
  const collective::Chooser chooser(tuning, {});
  Settings part = settings;
  part.table = false;
  part.operations.clear();
  part.sizes.clear();
  const auto add = [](auto& list, const auto& item) {
    if (std::find(list.begin(), list.end(), item) == list.end()) list.push_back(item);
  };
  for (const collective::TuningCell& cell : tuning.cells) {
    if (chooser.choose(cell.operation, cell.ranks, cell.bytes).algorithm == collective::kEngine) continue;
    add(part.operations, std::string(name(cell.operation)));
    add(part.sizes, Bytes{cell.bytes});
  }
  return part;
}

// Marks what the chooser picks, by the figures just taken (--tune, which also keeps them) or by those kept
// before. With --check-chooser the rows are measured anew first: figures by which nothing was picked.
void choose(Json& rows, const Settings& settings) {
  if (!settings.tune) return mark_choices(rows, {collective::read_tuning_of_this_machine(), {}});
  collective::Tuning tuning = tuning_from(rows);
  if (const Settings doubtful = doubtful_part(settings, tuning); !doubtful.sizes.empty())
    tuning = confirmed(std::move(tuning), tuning_from(measure(doubtful)));
  const collective::Chooser chooser(tuning, {});
  const auto path = collective::tuning_path();
  // Kept at the end: the check's engine must not run by them yet.
  if (settings.check_chooser) rows = measure(settings);
  mark_choices(rows, chooser);
  collective::write_tuning(path, tuning);
  std::ostream& out = settings.table ? std::cout : std::cerr;
  out << "\n"
      << describe_choices(rows, chooser) << "kept in " << path.string() << " for " << tuning.machine << "\n";
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

int run_collectives(const Settings& settings, const std::string& json_target) {
  say_who_is_missing(settings);
  Json all = measure(settings);
  choose(all, settings);
  return finish(all, json_target);
}

// The options that the user gave, as the command line takes them.
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

// Shows a plan instead of measuring: as a table, as JSON, as a page, whose head has the command line.
int explain(const PlanChoice& choice, const std::string& json_target, const std::string& page,
            const std::vector<std::string>& arguments) {
  if (json_target != "-") std::cout << explain_as_text(choice);
  const Json document = explain_as_json(choice);
  write_json(json_target, document);
  if (page.empty()) return 0;
  write_output(page, make_page({{"title", str(choice.algorithm, " ", choice.operation)},
                                {"plan", document},
                                {"made_by", to_json(make_provenance("rondo bench", arguments))}}));
  return 0;
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
    std::string algorithms;
    std::string channels = "shm";
    std::string page;
    PlanChoice plan;
    AcrossHosts across;
    Settings settings;
  };
  const auto flags = std::make_shared<Flags>();
  CLI::App* app =
      parent.add_subcommand("collectives", "Time of collectives by size, next to Gloo and Open MPI");
  app->footer(kCollectivesExamples);
  app->option_defaults()->always_capture_default();
  CLI::Option* operations = app->add_option("--operations,--operation", flags->operations,
                                            "Operations, or all: " + join(operation_names(), ", "));
  app->add_option("--ranks", flags->ranks, "Numbers of ranks");
  CLI::Option* sizes = app->add_option("--sizes,--bytes", flags->sizes, "Sizes, and ranges in steps of four");
  app->add_option("--dtype", flags->dtype, "float32, float64, float16 or bfloat16");
  app->add_option("--codec", flags->codecs,
                  "Codecs that float32 is also all-reduced through (with --peers over Gloo too): " +
                      join(collective::codec_names(), ", "));
  app->add_flag("--fresh", flags->settings.fresh,
                "Write the data before each operation; four sets of buffers in rotation");
  app->add_flag("--peers", flags->settings.peers,
                "Measure Gloo, and Open MPI when installed, in the same run");
  app->add_option("--algorithm", flags->algorithms,
                  "Also run these plans, or all: " + join(collective::algorithm_names(), ", "));
  app->add_option("--channel", flags->channels, "What plans run over: threads, shm, tcp");
  app->add_option("--hosts", flags->settings.hosts,
                  "Hosts that plans are made for (--explain, --algorithm); without them 2: all_reduce of "
                  "float32 between two hosts "
                  "emulated on this machine (needs root)")
      ->check(rondo::between(1, 64));
  app->add_flag("--deterministic", flags->settings.deterministic,
                "Add in the order of ranks, whatever the algorithm and the hosts");
  app->add_flag("--tune", flags->settings.tune,
                "Measure the engine and every algorithm on registered memory of one host, and keep the "
                "figures for the chooser to "
                "pick by; without --sizes at 4 B to 25 MiB");
  app->add_flag(
      "--check-chooser", flags->settings.check_chooser,
      "As --tune, then measure everything again: how far are the picks from the best of the new figures?");
  CLI::Option* explained =
      app->add_option("--explain", flags->plan.algorithm,
                      "Show the steps of an algorithm on one number of ranks, instead of measuring");
  app->add_option("--root", flags->plan.root, "With --explain: root of broadcast and reduce")
      ->needs(explained);
  app->add_option("--rows", flags->plan.rows,
                  "With --explain torus_2d: rows of the grid; 0: as square as can be")
      ->needs(explained);
  app->add_option("--html", flags->page, "With --explain: write a page that draws the steps")
      ->needs(explained);
  app->add_option("--rate", flags->across.rate, "With --hosts 2: rate of the link, as tc writes it");
  app->add_option(
      "--hierarchical", flags->across.options,
      "With --hosts 2: options of the hierarchical engine, as in inter_host_ranks=1,chunk=512KiB");
  CLI::Option* bursts = app->add_option("--bursts", flags->settings.effort.bursts, "Turns of each system")
                            ->check(rondo::between(1, 1000));
  CLI::Option* burst = app->add_option("--burst-time", flags->burst, "Length of a turn");
  add_json_flag(*app, flags->json);
  return {app, [app, flags, sizes, operations, bursts, burst] {
            Settings& settings = flags->settings;
            settings.ranks = parse_ranks(flags->ranks);
            settings.dtype = parse_dtype(flags->dtype);
            for (const int ranks : settings.ranks) spread_over_hosts(ranks, settings.hosts);
            if (!flags->plan.algorithm.empty()) {
              PlanChoice& plan = flags->plan;
              plan.operation = flags->operations;
              plan.ranks = settings.ranks.front();
              plan.hosts = settings.hosts;
              plan.bytes = sizes->count() > 0 ? parse_sizes(flags->sizes).front()
                                              : KiB(16 * static_cast<std::uint64_t>(plan.ranks));
              plan.dtype = flags->dtype;
              plan.in_rank_order = settings.deterministic;
              plan.element_bytes = c10::elementSize(settings.dtype);
              return explain(plan, flags->json, flags->page, given_options(*app));
            }
            settings.tune |= settings.check_chooser;
            if (settings.tune && operations->count() == 0)
              flags->operations = "all_reduce,reduce_scatter,all_gather,broadcast,reduce";
            if (settings.tune && flags->algorithms.empty()) flags->algorithms = "all";
            // Enough for the chooser, on two ranks in a minute.
            if (settings.tune && sizes->count() == 0) flags->sizes = "4B,1KiB,16KiB,64KiB,1MiB,4MiB,25MiB";
            if (settings.tune && bursts->count() == 0) settings.effort.bursts = 15;
            if (settings.tune && burst->count() == 0) flags->burst = "4ms";
            if (settings.tune) settings.effort.hopeless = 3;
            settings.operations = parse_operations(flags->operations);
            settings.sizes = parse_sizes(flags->sizes);
            settings.channels = parse_channels(flags->channels);
            if (!flags->algorithms.empty()) settings.algorithms = parse_algorithms(flags->algorithms);
            require_algorithms_for(settings);
            settings.codecs = parse_codecs(flags->codecs);
            settings.effort.burst = parse_duration(flags->burst, "--burst-time");
            settings.table = flags->json != "-";
            if (settings.hosts == 1 || !settings.algorithms.empty())
              return run_collectives(settings, flags->json);
            if (settings.hosts != 2)
              throw UsageError("--hosts: 1 or 2, or more with --explain or --algorithm");
            AcrossHosts& across = flags->across;
            across.sizes = settings.sizes;
            across.codecs = split(flags->codecs, ',');
            across.peers = settings.peers;
            across.deterministic = settings.deterministic;
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
