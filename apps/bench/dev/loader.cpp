// `rondo bench-dev loader`: the rate of reading samples, compared with PyTorch's DataLoader.
#include <filesystem>
#include <iostream>
#include <map>

#include "apps/bench/commands.h"
#include "apps/bench/harness/benchmark.h"
#include "apps/bench/harness/processes.h"
#include "rondo/base/error.h"
#include "rondo/base/file_access.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/random.h"
#include "rondo/base/text.h"
#include "rondo/data/image/image_options.h"
#include "rondo/data/loader.h"
#include "rondo/data/open.h"
#include "rondo/data/token_options.h"
#include "rondo/data/training_sampler.h"

namespace rondo::bench {
namespace {

namespace fs = std::filesystem;

struct LoaderFlags {
  std::string images;
  int image_count = 256;
  int threads = 1;
  int runs = 3;
  bool peers = false;
};

// Rates of the fastest turn.
struct LoaderRate {
  double samples_per_s = 0, bytes_per_s = 0;
  std::string reader = {};  // for a peer: the library that decodes and transforms its images
};
class LoaderRates {
 public:
  void add(const std::string& data, const std::string& system, const LoaderRate& rate) {
    LoaderRate& best = rates_[{data, system}];
    if (rate.samples_per_s > best.samples_per_s) best = rate;
  }

  Json rows(int threads) const {
    Json rows = Json::array();
    for (const auto& [key, rate] : rates_) {
      rows.push_back({{"data", key.first},
                      {"system", key.second},
                      {"threads", key.first == "jpeg" ? threads : 1},
                      {"samples_per_s", rate.samples_per_s},
                      {"bytes_per_s", rate.bytes_per_s}});
      if (!rate.reader.empty()) rows.back()["reader"] = rate.reader;
    }
    for (const char* data : {"bytes", "tokens"}) {
      if (const auto found = rates_.find({data, "rondo"}); found != rates_.end()) {
        rows.push_back(
            ratio_row({"GB/s of batches per thread", data, "1 GB/s", found->second.bytes_per_s / 1e9, 1.0}));
      }
    }
    const auto peer = rates_.find({"jpeg", "pytorch"});
    if (peer == rates_.end()) return rows;
    for (const char* system : {"rondo", "rondo, full decode"}) {
      rows.push_back(
          ratio_row({"samples over pytorch", str("jpeg, ", system), "pytorch",
                     rates_.at({"jpeg", system}).samples_per_s / peer->second.samples_per_s, 1.2}));
    }
    return rows;
  }

 private:
  std::map<std::pair<std::string, std::string>, LoaderRate> rates_;  // by data and system
};

constexpr std::int64_t kContext = 1024;
constexpr std::int64_t kTokenBatch = 16, kImageBatch = 32;
constexpr std::size_t kTextBytes = std::size_t{64} << 20;

// Reads two epochs and measures the second.
LoaderRate read_all_of(const std::shared_ptr<const Dataset>& data, std::int64_t batch_size, int threads) {
  Loader loader(data, std::make_shared<TrainingSampler>(data->size(), TrainingSampler::Options{}),
                {.batch_size = batch_size, .threads = threads, .prefetch = 2 * threads});
  LoaderRate rate;
  for (const std::int64_t epoch : {0, 1}) {
    loader.seek({.epoch = epoch});
    std::int64_t samples = 0;
    std::size_t bytes = 0;
    const double elapsed = timed([&] {
      while (const std::optional<Batch> batch = loader.next()) {
        samples += batch->samples;
        for (const auto* tensors : {&batch->inputs, &batch->targets}) {
          for (const at::Tensor& tensor : *tensors) bytes += tensor.nbytes();
        }
      }
    });
    rate = {static_cast<double>(samples) / elapsed, static_cast<double>(bytes) / elapsed};
  }
  return rate;
}

// Returns random letters: valid text, and as tokens numbers below 2^15.
std::string random_letters(std::size_t count) {
  RandomStream random(1);
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>('a' + random.below(26));
  return bytes;
}

void measure_tokens(const LoaderFlags& flags, const fs::path& folder, LoaderRates& rates) {
  const fs::path path = folder / "text.bin";
  write_output(path, random_letters(kTextBytes));
  DataOptions options{.validation_fraction = 0, .context = kContext};
  options.of_kind.edit<TokenOptions>().vocabulary = std::int64_t{1} << 15;
  const OpenedData text = open_data("text", path, options), tokens = open_data("tokens", path, options);
  for (int run = 0; run < flags.runs; ++run) {
    rates.add("bytes", "rondo", read_all_of(text.train, kTokenBatch, 1));
    rates.add("tokens", "rondo", read_all_of(tokens.train, kTokenBatch, 1));
  }
}

LoaderRate measure_image_peer(const LoaderFlags& flags, const std::string& images, const fs::path& folder) {
  const fs::path answer = folder / "pytorch.json";
  run_to_end(
      {python(), peer_script("loader.py"), "run", images, str(flags.threads), str(kImageBatch), answer});
  const auto row = read_json_file(answer);
  return {row.at("samples_per_s"), row.at("bytes_per_s"), row.at("reader")};
}

void measure_images(const LoaderFlags& flags, const fs::path& folder, LoaderRates& rates) {
  std::string images = flags.images;
  if (images.empty()) {
    images = folder / "images";
    try {
      run_to_end({python(), peer_script("loader.py"), "make", images, str(flags.image_count)});
    } catch (const Error& error) {
      std::cerr << "skipping images, which are generated with Pillow (install it with make setup, or give "
                   "--images FOLDER): "
                << error.what() << "\n";
      return;
    }
  }
  DataOptions options{.validation_fraction = 0};
  const OpenedData scaled = open_data("image_folder", images, options);
  options.of_kind.edit<ImageOptions>().decode = "full";
  const OpenedData full = open_data("image_folder", images, options);
  const bool peers = peers_take_part(flags.peers);
  for (int run = 0; run < flags.runs; ++run) {
    rates.add("jpeg", "rondo", read_all_of(scaled.train, kImageBatch, flags.threads));
    rates.add("jpeg", "rondo, full decode", read_all_of(full.train, kImageBatch, flags.threads));
    if (peers) rates.add("jpeg", "pytorch", measure_image_peer(flags, images, folder));
  }
}

Json run_loader(const LoaderFlags& flags, bool prints) {
  const auto scratch = make_scratch();
  LoaderRates rates;
  measure_tokens(flags, scratch.path(), rates);
  measure_images(flags, scratch.path(), rates);
  Json rows = rates.rows(flags.threads);
  if (prints) {
    print_table(rows, {{"data", -8, "data"},
                       {"system", -20, "system"},
                       {"threads", 8, "threads"},
                       {"samples/s", 12, "samples_per_s"},
                       {"GB/s", 10, "bytes_per_s", 2, 1e-9},
                       {"peer's reader", 0, "reader"}});
  }
  return rows;
}

}  // namespace

Command add_loader(CLI::App& parent) {
  return add_benchmark<LoaderFlags>(
      parent,
      {"loader", "Reading samples: text, token files and JPEGs, next to PyTorch's DataLoader",
       "Examples:\n  rondo bench-dev loader --peers --threads 2\n  rondo bench-dev loader --images "
       "imagenet/val --json loader.json\n\nOne thread reads text and tokens. For images, --threads sets "
       "rondo's threads and PyTorch's workers."},
      [](CLI::App& app, LoaderFlags& flags) {
        app.add_option("--images", flags.images,
                       "Folder with one subfolder of JPEGs per class; default: generated images")
            ->check(existing_path());
        app.add_option("--image-count", flags.image_count, "Number of images to generate")
            ->check(between(32, 100000));
        app.add_option("--threads", flags.threads,
                       "Threads that decode images, and workers of PyTorch's DataLoader")
            ->check(between(1, 1024));
        add_turns_flag(app, "--runs", flags.runs, "Turns of each system");
        app.add_flag("--peers", flags.peers, "Measure PyTorch's DataLoader too");
      },
      run_loader);
}

}  // namespace rondo::bench
