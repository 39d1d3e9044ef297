// `rondo bench loader`: how fast samples are read, next to PyTorch's DataLoader.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/bench/commands.h"
#include "apps/bench/python.h"
#include "apps/bench/run_to_end.h"
#include "apps/common/flag_checks.h"
#include "apps/common/result_flags.h"
#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/output.h"
#include "rondo/base/random.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"
#include "rondo/data/image/image_options.h"
#include "rondo/data/loader.h"
#include "rondo/data/open.h"
#include "rondo/data/token_options.h"
#include "rondo/data/training_sampler.h"
#include "rondo/launch/scratch.h"

namespace rondo::bench {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct LoaderFlags {
  std::string images;
  int image_count = 256;
  int threads = 1;
  int runs = 3;
  bool peers = false;
  std::string json;
};

// Of the fastest turn.
struct LoaderRate {
  double samples_per_s = 0, bytes_per_s = 0;
  std::string reader = {};  // of a peer: which library opens and changes its images
};
using LoaderRates = std::map<std::pair<std::string, std::string>, LoaderRate>;  // by data and system

constexpr std::int64_t kContext = 1024;
constexpr std::int64_t kTokenBatch = 16, kImageBatch = 32;
constexpr std::size_t kTextBytes = std::size_t{64} << 20;

std::size_t bytes_of(const Batch& batch) {
  std::size_t bytes = 0;
  for (const auto* tensors : {&batch.inputs, &batch.targets}) {
    for (const at::Tensor& tensor : *tensors) bytes += tensor.nbytes();
  }
  return bytes;
}

// Two epochs, of which the second is measured.
LoaderRate read_all_of(const std::shared_ptr<const Dataset>& data, std::int64_t batch_size, int threads) {
  Loader loader(data, std::make_shared<TrainingSampler>(data->size(), TrainingSampler::Options{}),
                {.batch_size = batch_size, .threads = threads, .prefetch = 2 * threads});
  LoaderRate rate;
  for (const std::int64_t epoch : {0, 1}) {
    loader.seek({.epoch = epoch});
    const TimePoint begin = Clock::now();
    std::int64_t samples = 0;
    std::size_t bytes = 0;
    while (const std::optional<Batch> batch = loader.next()) {
      samples += batch->samples;
      bytes += bytes_of(*batch);
    }
    const double elapsed = seconds(Clock::now() - begin);
    rate = {static_cast<double>(samples) / elapsed, static_cast<double>(bytes) / elapsed};
  }
  return rate;
}

void keep_faster(LoaderRate& best, const LoaderRate& rate) {
  if (rate.samples_per_s > best.samples_per_s) best = rate;
}

std::string random_bytes(std::size_t count) {
  RandomStream random(1);
  std::string bytes(count, '\0');
  // Letters, so that the file is text; as tokens, numbers below 2^15.
  for (char& byte : bytes) byte = static_cast<char>('a' + random.below(26));
  return bytes;
}

void measure_tokens(const LoaderFlags& flags, const fs::path& folder, LoaderRates& rates) {
  const fs::path path = folder / "text.bin";
  write_output(path, random_bytes(kTextBytes));
  DataOptions options{.validation_fraction = 0, .context = kContext};
  options.of_kind.edit<TokenOptions>().vocabulary = std::int64_t{1} << 15;
  const OpenedData text = open_data("text", path, options), tokens = open_data("tokens", path, options);
  for (int run = 0; run < flags.runs; ++run) {
    keep_faster(rates[{"bytes", "rondo"}], read_all_of(text.train, kTokenBatch, 1));
    keep_faster(rates[{"tokens", "rondo"}], read_all_of(tokens.train, kTokenBatch, 1));
  }
}

LoaderRate measure_image_peer(const LoaderFlags& flags, const std::string& images, const fs::path& folder) {
  const fs::path answer = folder / "pytorch.json";
  run_to_end({python(), peer_script("loader.py"), "run", images, std::to_string(flags.threads),
              std::to_string(kImageBatch), answer.string()});
  const auto said = read_json_file(answer);
  return {said.at("samples_per_s").get<double>(), said.at("bytes_per_s").get<double>(),
          said.at("reader").get<std::string>()};
}

void measure_images(const LoaderFlags& flags, const fs::path& folder, LoaderRates& rates) {
  std::string images = flags.images;
  if (images.empty()) {
    images = folder / "images";
    try {
      run_to_end({python(), peer_script("loader.py"), "make", images, std::to_string(flags.image_count)});
    } catch (const Error& error) {
      std::cerr << "without images, which Pillow would draw (make setup installs it; --images FOLDER names "
                   "others): "
                << error.what() << "\n";
      return;
    }
  }
  DataOptions options{.validation_fraction = 0};
  const OpenedData scaled = open_data("image_folder", images, options);
  options.of_kind.edit<ImageOptions>().decode = "full";
  const OpenedData full = open_data("image_folder", images, options);
  bool peers = flags.peers;
  if (const std::string why = peers ? why_no_pytorch() : ""; !why.empty()) {
    std::cerr << "without PyTorch: " << why << "\n";
    peers = false;
  }
  for (int run = 0; run < flags.runs; ++run) {
    keep_faster(rates[{"jpeg", "rondo"}], read_all_of(scaled.train, kImageBatch, flags.threads));
    keep_faster(rates[{"jpeg", "rondo, full decode"}], read_all_of(full.train, kImageBatch, flags.threads));
    if (peers) keep_faster(rates[{"jpeg", "pytorch"}], measure_image_peer(flags, images, folder));
  }
}

Json loader_rows(const LoaderFlags& flags, const LoaderRates& rates) {
  Json rows = Json::array();
  for (const auto& [key, rate] : rates) {
    rows.push_back({{"data", key.first},
                    {"system", key.second},
                    {"threads", key.first == "jpeg" ? flags.threads : 1},
                    {"samples_per_s", rate.samples_per_s},
                    {"bytes_per_s", rate.bytes_per_s}});
    if (!rate.reader.empty()) rows.back()["reader"] = rate.reader;
  }
  const auto add = [&](const char* ratio, const std::string& of, double value, double goal) {
    rows.push_back({{"ratio", ratio}, {"of", of}, {"value", value}, {"goal", goal}, {"better", "higher"}});
  };
  for (const char* data : {"bytes", "tokens"}) {
    if (const auto found = rates.find({data, "rondo"}); found != rates.end())
      add("GB/s of batches per thread", data, found->second.bytes_per_s / 1e9, 1.0);
  }
  if (const auto peer = rates.find({"jpeg", "pytorch"}); peer != rates.end()) {
    for (const char* system : {"rondo", "rondo, full decode"}) {
      add("samples over pytorch", str("jpeg, ", system),
          rates.at({"jpeg", system}).samples_per_s / peer->second.samples_per_s, 1.2);
    }
  }
  return rows;
}

void print_loader_rows(const Json& rows) {
  std::printf("%-8s %-28s %8s %12s %10s\n", "data", "system", "threads", "samples/s", "GB/s");
  for (const Json& row : rows) {
    if (row.contains("ratio")) {
      std::printf("%s, %s: %.2f (goal >= %.2f: %s)\n", row["ratio"].get<std::string>().c_str(),
                  row["of"].get<std::string>().c_str(), row["value"].get<double>(), row["goal"].get<double>(),
                  row["value"] >= row["goal"] ? "met" : "missed");
    } else {
      std::string system = row["system"];
      if (row.contains("reader")) system += str(", ", row["reader"].get<std::string>());
      std::printf("%-8s %-28s %8d %12.0f %10.2f\n", row["data"].get<std::string>().c_str(), system.c_str(),
                  row["threads"].get<int>(), row["samples_per_s"].get<double>(),
                  row["bytes_per_s"].get<double>() / 1e9);
    }
  }
}

int run_loader(const LoaderFlags& flags) {
  const auto scratch = launch::ScratchDirectory::create();
  const fs::path folder = scratch.path();
  LoaderRates rates;
  measure_tokens(flags, folder, rates);
  measure_images(flags, folder, rates);
  const Json rows = loader_rows(flags, rates);
  if (flags.json != "-") print_loader_rows(rows);
  write_json(flags.json, rows);
  return 0;
}

}  // namespace

Command add_loader(CLI::App& parent) {
  const auto flags = std::make_shared<LoaderFlags>();
  CLI::App* app = parent.add_subcommand(
      "loader", "Reading samples: text, token files and JPEGs, next to PyTorch's DataLoader");
  app->footer(
      "Examples:\n"
      "  rondo bench loader --peers --threads 2\n"
      "  rondo bench loader --images imagenet/val --json loader.json\n\n"
      "Text and tokens are read by one thread; --threads is of images, for rondo's threads and PyTorch's "
      "workers alike.");
  app->option_defaults()->always_capture_default();
  app->add_option("--images", flags->images,
                  "Folder of JPEGs with a folder for each class; default: drawn ones")
      ->check(existing_path());
  app->add_option("--image-count", flags->image_count, "Images to draw")->check(rondo::between(32, 100000));
  app->add_option("--threads", flags->threads, "Threads that decode images, and workers of the peer")
      ->check(rondo::between(1, 1024));
  add_turns_flag(*app, "--runs", flags->runs, "Turns of each system");
  app->add_flag("--peers", flags->peers, "Measure PyTorch's DataLoader too");
  add_json_flag(*app, flags->json);
  return {app, [flags] { return run_loader(*flags); }};
}

}  // namespace rondo::bench
