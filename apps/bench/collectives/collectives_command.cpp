// `rondo bench collectives`: reads the flags, has everything measured, writes the JSON.
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/bench/collectives/across_hosts.h"
#include "apps/bench/collectives/choose.h"
#include "apps/bench/collectives/explain.h"
#include "apps/bench/collectives/measure.h"
#include "apps/bench/collectives/openmpi_contender.h"
#include "apps/bench/collectives/plan_contender.h"
#include "apps/bench/collectives/sizes.h"
#include "apps/bench/commands.h"
#include "apps/common/flag_checks.h"
#include "apps/common/result_flags.h"
#include "apps/report/page.h"
#include "rondo/base/error.h"
#include "rondo/base/output.h"
#include "rondo/base/text.h"
#include "rondo/collective/algorithms/registry.h"
#include "rondo/collective/codec/codec.h"
#include "rondo/format/run_directory.h"

namespace rondo::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kCollectivesExamples = R"(Examples:
  rondo bench collectives                                     # rondo's engine, all_reduce, 2 ranks
  rondo bench collectives --peers --ranks 2,4 --json out.json  # next to Gloo, and to Open MPI when installed
  rondo bench collectives --operations all --sizes 4B,25MiB --dtype bfloat16
  rondo bench collectives --algorithm all --channel shm,tcp   # every algorithm, beside the engine
  rondo bench collectives --check-chooser --ranks 2,4         # are its picks within 10 % of the best?
  rondo bench collectives --explain ring --ranks 4            # what each rank sends, receives and adds, and when
  rondo bench collectives --hosts 2 --rate 1gbit --ranks 4 --sizes 25MiB --codec none,bfloat16,int8 --peers
                                                              # all_reduce between two emulated hosts (as root)
  rondo bench collectives --sizes 1MiB,25MiB --codec float16,int8 --peers   # through codecs too, also over Gloo

rondo is measured with buffers in registered (shared) memory and in ordinary memory; the peers with ordinary memory. Ranks
are pinned to one processor each. p50 and minimum are of the slowest rank. "longest gap" is the longest time in which a processor
did not run us while we watched it before each line: judge lines beside large gaps with care.)";

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

void say_who_is_missing(const CollectivesSettings& settings) {
  if (!settings.peers) return;
  if (const std::string why = why_no_openmpi(); !why.empty())
    std::cerr << "without Open MPI: " << why << "\n";
  if (settings.dtype != at::kFloat) std::cerr << "without Open MPI: it is measured in float32 only\n";
}

// An operation that none of the named algorithms has would only measure the engine.
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

// A result that is wrong is a failure of the run.
int finish(const Json& all, const std::string& json_target) {
  write_json(json_target, all);
  for (const auto& row : all) {
    if (!row.at("correct").get<bool>())
      throw Error("some results were wrong: WRONG in the table, \"correct\": false in the JSON");
  }
  return 0;
}

int run_collectives(const CollectivesSettings& settings, const std::string& json_target) {
  say_who_is_missing(settings);
  Json all = measure_collectives(settings);
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
    CollectivesSettings settings;
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
            CollectivesSettings& settings = flags->settings;
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
