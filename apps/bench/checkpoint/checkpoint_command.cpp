// `rondo bench checkpoint`: what saving and loading costs, next to the disk, to memory and to PyTorch.
#include <torch/nn/module.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "apps/bench/checkpoint/disk.h"
#include "apps/bench/commands.h"
#include "apps/bench/print_ratio.h"
#include "apps/bench/python.h"
#include "apps/bench/run_to_end.h"
#include "apps/common/flag_checks.h"
#include "apps/common/result_flags.h"
#include "rondo/backend/context.h"
#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/median.h"
#include "rondo/base/output.h"
#include "rondo/base/peer_ratio.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"
#include "rondo/checkpoint/optimizer_state.h"
#include "rondo/data/dataset.h"
#include "rondo/launch/scratch.h"
#include "rondo/models/model.h"
#include "rondo/parallel/registry.h"
#include "rondo/train/optimizer.h"
#include "rondo/train/replica/newest_replica.h"
#include "rondo/train/replica_saver.h"
#include "rondo/train/trainer.h"

namespace rondo::bench {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct CheckpointFlags {
  std::string model = "gpt-25m";
  std::string directory;
  int runs = 5;
  bool peers = false;
  std::string json;
};

// Seconds of each run, by system and operation; of a save in the background also how long training stood.
struct Figures {
  std::vector<double> seconds, stall;
};
using Measured = std::map<std::pair<std::string, std::string>, Figures>;

double timed(const std::function<void()>& action) {
  const TimePoint begin = Clock::now();
  action();
  return seconds(Clock::now() - begin);
}

// A model with a step behind it.
class Subject {
 public:
  explicit Subject(const std::string& name)
      : context_(init({.init_method = "alone"})),
        strategy_(all_strategies().make("one_device", context_, {})),
        trainer_(*strategy_, make_model(name)) {
    trainer_.compile([](torch::nn::Module& module) { return make_optimizer(OptimizerOptions{}, module); });
    const auto context = trainer_.model().config.value("context", std::int64_t{64});
    const at::Tensor tokens = torch::randint(0, 256, {2, context}, at::kLong);
    trainer_.fit(std::make_shared<TensorDataset>(std::vector{tokens}, std::vector{tokens}),
                 {.steps = 1, .batch_size = 2});
    for (const auto& parameter : trainer_.model().module->parameters()) state_.push_back(parameter.detach());
    const NamedTensors named = named_tensors(*trainer_.model().module);
    for (const NamedTensor& t : snapshot_optimizer(kOptimizerName, trainer_.optimizer(), named).tensors)
      state_.push_back(t.tensor);
  }
  const Context& context() const { return context_; }
  Trainer& trainer() { return trainer_; }
  const std::vector<at::Tensor>& state() const { return state_; }
  std::size_t bytes() const {
    std::size_t sum = 0;
    for (const at::Tensor& tensor : state_) sum += tensor.nbytes();
    return sum;
  }

 private:
  Context context_;
  std::unique_ptr<Strategy> strategy_;
  Trainer trainer_;
  std::vector<at::Tensor> state_;
};

// The state in memory that outlives the ranks, as `rondo train --replica-every` keeps it, and back.
void measure_replica(Subject& subject, Measured& measured) {
  const auto memory = launch::ScratchDirectory::create_in_memory();
  if (memory.path().empty()) throw Error("no directory can be made in /dev/shm");
  // The first one makes the memory for the copy, which stays for the next.
  ReplicaSaver saver(subject.context(), memory.path());
  const auto replicate = [&] { rondo::replicate(subject.trainer(), saver); };
  const auto finish = [&] {
    if (const std::string failure = saver.finish(); !failure.empty()) throw Error(failure);
  };
  replicate();
  finish();
  Figures& saved = measured[{"rondo", "replica_save"}];
  const TimePoint begin = Clock::now();
  saved.stall.push_back(timed(replicate));
  finish();
  saved.seconds.push_back(seconds(Clock::now() - begin));
  measured[{"rondo", "replica_load"}].seconds.push_back(timed([&] {
    subject.trainer().restore(newest_replica(subject.context(), memory.path(), std::nullopt).value());
  }));
}

void measure_rondo(Subject& subject, const fs::path& folder, Measured& measured) {
  const auto figures = [&](const char* operation) -> Figures& { return measured[{"rondo", operation}]; };
  const auto touch = [&] { touch_page_cache(folder / "touched", subject.bytes()); };
  const auto measure = [&](const char* operation, const std::function<void()>& action) {
    figures(operation).seconds.push_back(timed(action));
  };
  static std::vector<at::Tensor> copies;
  if (copies.empty()) {
    for (const at::Tensor& tensor : subject.state()) copies.push_back(tensor.clone());
  }
  measure("memcpy", [&] {
    for (std::size_t i = 0; i < copies.size(); ++i) copies[i].copy_(subject.state()[i]);
  });
  measured[{"disk", "disk_write"}].seconds.push_back(write_directly(folder / "plain", subject.bytes()));
  measured[{"disk", "disk_read"}].seconds.push_back(read_directly(folder / "plain"));
  fs::remove(folder / "plain");
  const fs::path root = folder / "checkpoints";
  touch();
  measure("save", [&] { subject.trainer().save(root, 1); });
  measure("load", [&] { subject.trainer().restore(root); });
  drop_from_cache(root);
  touch();
  measure("cold_load", [&] { subject.trainer().restore(root); });
  fs::remove_all(root);
  touch();
  const TimePoint begin = Clock::now();
  figures("async_save").stall.push_back(timed([&] {
    subject.trainer().save(root, SaveOptions{.keep = 1, .in_background = true});
  }));
  subject.trainer().finish_save();
  figures("async_save").seconds.push_back(seconds(Clock::now() - begin));
  fs::remove_all(root);
  measure_replica(subject, measured);
}

void measure_peer(const CheckpointFlags& flags, const Subject& subject, const fs::path& folder,
                  Measured& measured) {
  Json shapes = Json::array();
  for (const at::Tensor& tensor : subject.state()) shapes.push_back(tensor.sizes().vec());
  const fs::path told = folder / "shapes.json";
  write_own_file(told, shapes.dump());
  const fs::path answer = folder / "pytorch.json";
  const std::vector<std::string> words{python(),        peer_script("checkpoint.py"),
                                       told.string(),   folder.string(),
                                       str(flags.runs), answer.string()};
  run_to_end(words);
  const auto rows = read_json_file(answer);
  for (const auto& [operation, row] : rows.items()) {
    Figures& figures = measured[{"pytorch", operation}];
    figures.seconds = row.at("seconds").get<std::vector<double>>();
    figures.stall = row.at("stall").get<std::vector<double>>();
  }
}

Json rows_of(const Measured& measured, std::size_t bytes) {
  Json rows = Json::array();
  for (const auto& [key, figures] : measured) {
    Json row{{"system", key.first}, {"operation", key.second}, {"bytes", bytes}};
    row["seconds"] = median(figures.seconds);
    row["seconds_min"] = *std::min_element(figures.seconds.begin(), figures.seconds.end());
    row["stall_s"] = figures.stall.empty() ? Json() : Json(median(figures.stall));
    if (!figures.stall.empty())
      row["stall_s_min"] = *std::min_element(figures.stall.begin(), figures.stall.end());
    rows.push_back(std::move(row));
  }
  return rows;
}

const Json* find_row(const Json& rows, const char* system, const char* operation) {
  for (const Json& row : rows) {
    if (row.contains("system") && row["system"] == system && row["operation"] == operation) return &row;
  }
  return nullptr;
}

// Ratios with their goals, of medians or minima by the rule of all peers.
void add_ratios(Json& rows) {
  const Json measured = rows;
  const auto add = [&](const char* of, const char* to, const PeerRatio& ratio, double goal,
                       const char* better) {
    rows.push_back({{"ratio", "time"},
                    {"of", of},
                    {"to", to},
                    {"value", ratio.value},
                    {"by", ratio.of_minima ? "min" : "p50"},
                    {"goal", goal},
                    {"better", better}});
  };
  const auto time = [&](const char* system, const char* operation) {
    const Json* const row = find_row(measured, system, operation);
    return row == nullptr ? RepeatedTime{}
                          : RepeatedTime{.p50 = row->at("seconds"), .min = row->at("seconds_min")};
  };
  const Json* const background = find_row(measured, "rondo", "async_save");
  const RepeatedTime stall{.p50 = background->at("stall_s"), .min = background->at("stall_s_min")};
  PeerRatio slower = peer_ratio(stall, time("rondo", "memcpy"));
  slower.value = 1 / slower.value;
  add("async_save stall", "memcpy", slower, 1.2, "lower");
  add("disk_write", "save", peer_ratio(time("rondo", "save"), time("disk", "disk_write")), 0.8, "higher");
  add("disk_read", "cold_load", peer_ratio(time("rondo", "cold_load"), time("disk", "disk_read")), 0.8,
      "higher");
  if (find_row(measured, "pytorch", "save") == nullptr) return;
  for (const char* operation : {"save", "load"}) {
    add(str("pytorch ", operation).c_str(), str("rondo ", operation).c_str(),
        peer_ratio(time("rondo", operation), time("pytorch", operation)), 2.0, "higher");
  }
}

void print_checkpoint_rows(const Json& rows) {
  std::printf("%-10s %-12s %10s %10s %10s %10s\n", "system", "operation", "p50 s", "min s", "stall s",
              "MB/s");
  for (const Json& row : rows) {
    if (row.contains("ratio")) {
      print_ratio(row, 4);
      continue;
    }
    const std::string stall =
        row["stall_s"].is_null() ? std::string("-") : str(row["stall_s"].get<double>()).substr(0, 6);
    std::printf("%-10s %-12s %10.3f %10.3f %10s %10.0f\n", row["system"].get<std::string>().c_str(),
                row["operation"].get<std::string>().c_str(), row["seconds"].get<double>(),
                row["seconds_min"].get<double>(), stall.c_str(),
                row["bytes"].get<double>() / 1e6 / row["seconds_min"].get<double>());
  }
  std::printf("%s\n", kPeerRatioRule);
}

int run_checkpoint(const CheckpointFlags& flags) {
  const auto scratch = launch::ScratchDirectory::create();
  const fs::path folder = (flags.directory.empty() ? fs::path(scratch.path()) : fs::path(flags.directory)) /
                          "rondo-bench-checkpoint";
  fs::create_directories(folder);
  Measured measured;
  std::size_t bytes = 0;
  {
    Subject subject(flags.model);
    bytes = subject.bytes();
    for (int run = 0; run < flags.runs; ++run) measure_rondo(subject, folder, measured);
    if (flags.peers) {
      if (const std::string why = why_no_pytorch(); why.empty()) {
        measure_peer(flags, subject, folder, measured);
      } else {
        std::cerr << "without PyTorch: " << why << "\n";
      }
    }
  }
  fs::remove_all(folder);
  Json rows = rows_of(measured, bytes);
  add_ratios(rows);
  if (flags.json != "-") print_checkpoint_rows(rows);
  write_json(flags.json, rows);
  return 0;
}

}  // namespace

Command add_checkpoint(CLI::App& parent) {
  const auto flags = std::make_shared<CheckpointFlags>();
  CLI::App* app = parent.add_subcommand(
      "checkpoint", "Saving and loading a training's state, next to the disk, to memory and to PyTorch");
  app->footer(
      "Examples:\n"
      "  rondo bench checkpoint --directory runs\n"
      "  rondo bench checkpoint --peers --json checkpoint.json\n\n"
      "One process; the state is that of AdamW after a step. seconds_min and stall_s_min are of the best "
      "run.");
  app->option_defaults()->always_capture_default();
  app->add_option("--model", flags->model, "Built-in GPT whose state it is")
      ->check(CLI::IsMember({"gpt-25m", "gpt-tiny"}));
  app->add_option("--directory", flags->directory,
                  "Folder on the disk to measure (default: $TMPDIR or /tmp)");
  add_turns_flag(*app, "--runs", flags->runs, "Turns of each operation");
  app->add_flag("--peers", flags->peers, "Measure torch.distributed.checkpoint too");
  add_json_flag(*app, flags->json);
  return {app, [flags] { return run_checkpoint(*flags); }};
}

}  // namespace rondo::bench
