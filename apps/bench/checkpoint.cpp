// `rondo bench checkpoint`: saving and loading, compared with the disk, memory and PyTorch.
#include <fcntl.h>
#include <torch/nn/module.h>
#include <torch/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>

#include "apps/bench/commands.h"
#include "apps/bench/harness/benchmark.h"
#include "apps/bench/harness/processes.h"
#include "rondo/backend/context.h"
#include "rondo/base/error.h"
#include "rondo/base/file_access.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/stage_progress.h"
#include "rondo/base/text.h"
#include "rondo/checkpoint/optimizer_state.h"
#include "rondo/data/dataset.h"
#include "rondo/format/file.h"
#include "rondo/models/model.h"
#include "rondo/nn/optimizers/optimizer.h"
#include "rondo/parallel/registry.h"
#include "rondo/train/memory_checkpoint/newest_memory_checkpoint.h"
#include "rondo/train/memory_checkpoint_saver.h"
#include "rondo/train/trainer.h"

namespace rondo::bench {
namespace {

namespace fs = std::filesystem;

struct CheckpointFlags {
  std::string model = "gpt-25m";
  std::string directory;
  int runs = 5;
  bool peers = false;
};

constexpr std::size_t kBlock = std::size_t{4} << 20;

// A block of 4 MiB, aligned for direct access.
struct FreeBlock {
  void operator()(void* memory) const { std::free(memory); }
};
using Block = std::unique_ptr<void, FreeBlock>;

Block make_block() {
  Block block(std::aligned_alloc(4096, kBlock));
  if (!block) throw Error("no memory for a block of 4 MiB");
  std::memset(block.get(), 0x5a, kBlock);
  return block;
}

class OpenFile {
 public:
  OpenFile(const fs::path& path, int flags) : descriptor_(::open(path.c_str(), flags | O_CLOEXEC)) {
    if (descriptor_ < 0) throw Error(str("cannot open ", path.string(), ": ", errno_text(errno)));
  }
  ~OpenFile() { ::close(descriptor_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

// Writes and syncs a new file of that size, rounded up to whole blocks, bypassing the page cache (O_DIRECT).
// Throws Error if the file system has no direct access.
void write_directly(const fs::path& path, std::size_t bytes) {
  const Block block = make_block();
  OutputFile(path, OutputFile::Mode::create).close();
  const OpenFile file(path, O_WRONLY | O_DIRECT);
  for (std::size_t written = 0; written < bytes; written += kBlock) {
    if (::write(file.descriptor(), block.get(), kBlock) != static_cast<ssize_t>(kBlock))
      throw Error(str("cannot write ", path.string(), ": ", errno_text(errno)));
  }
  if (::fsync(file.descriptor()) != 0)
    throw Error(str("cannot sync ", path.string(), ": ", errno_text(errno)));
}

void read_directly(const fs::path& path) {
  const Block block = make_block();
  const OpenFile file(path, O_RDONLY | O_DIRECT);
  ssize_t count = 0;
  do count = ::read(file.descriptor(), block.get(), kBlock);
  while (count > 0);
  if (count < 0) throw Error(str("cannot read ", path.string(), ": ", errno_text(errno)));
}

// Writes a file of `bytes` bytes into the page cache and deletes it, so that the next file finds memory that
// the machine already has. The host of a virtual machine reclaims free memory within a second and returns it
// page by page: saving 306 MB then took 0.3 s or more instead of 0.09 s.
void touch_page_cache(const fs::path& path, std::size_t bytes) {
  const Block block = make_block();
  OutputFile file(path, OutputFile::Mode::create);
  for (std::size_t written = 0; written < bytes; written += kBlock)
    file.write({static_cast<const std::byte*>(block.get()), kBlock});
  fs::remove(path);
}

// Evicts the folder's files from the page cache, so that the next read comes from the disk.
void drop_from_cache(const fs::path& directory) {
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file()) continue;
    const OpenFile file(entry.path(), O_RDONLY);
    ::fsync(file.descriptor());
    ::posix_fadvise(file.descriptor(), 0, 0, POSIX_FADV_DONTNEED);
  }
}

// A model after one step, with optimizer state.
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
    for (const at::Tensor& tensor : state_) copies_.push_back(tensor.clone());
  }
  const Context& context() const { return context_; }
  Trainer& trainer() { return trainer_; }
  const std::vector<at::Tensor>& state() const { return state_; }
  std::size_t bytes() const {
    std::size_t sum = 0;
    for (const at::Tensor& tensor : state_) sum += tensor.nbytes();
    return sum;
  }
  void copy_in_memory() {
    for (std::size_t i = 0; i < copies_.size(); ++i) copies_[i].copy_(state_[i]);
  }

 private:
  Context context_;
  std::unique_ptr<Strategy> strategy_;
  Trainer trainer_;
  std::vector<at::Tensor> state_, copies_;
};

// The seconds of each run, by system and operation; for a save in the background also the time that training
// was blocked.
struct Figures {
  std::vector<double> seconds, stall;
};
class CheckpointRuns {
 public:
  CheckpointRuns(Subject& subject, fs::path folder) : subject_(subject), folder_(std::move(folder)) {}

  void run_once() {
    measure("rondo", "memcpy", [&] { subject_.copy_in_memory(); });
    measure("disk", "disk_write", [&] { write_directly(folder_ / "plain", subject_.bytes()); });
    measure("disk", "disk_read", [&] { read_directly(folder_ / "plain"); });
    fs::remove(folder_ / "plain");
    const fs::path root = folder_ / "checkpoints";
    Trainer& trainer = subject_.trainer();
    touch();
    measure("rondo", "save", [&] { trainer.save(root, 1); });
    measure("rondo", "load", [&] { trainer.restore(root); });
    drop_from_cache(root);
    touch();
    measure("rondo", "cold_load", [&] { trainer.restore(root); });
    fs::remove_all(root);
    touch();
    measure_in_background(
        "async_save", [&] { trainer.save(root, SaveOptions{.keep = 1, .in_background = true}); },
        [&] { trainer.finish_save(); });
    fs::remove_all(root);
    run_in_memory();
  }

  void add_peer(int runs) {
    Json shapes = Json::array();
    for (const at::Tensor& tensor : subject_.state()) shapes.push_back(tensor.sizes().vec());
    const fs::path told = folder_ / "shapes.json", answer = folder_ / "pytorch.json";
    write_own_file(told, shapes.dump());
    run_to_end({python(), peer_script("checkpoint.py"), told, folder_, str(runs), answer});
    for (const auto& [operation, row] : read_json_file(answer).items()) {
      measured_[{"pytorch", operation}] = {row.at("seconds").get<std::vector<double>>(),
                                           row.at("stall").get<std::vector<double>>()};
    }
  }

  Json rows() const {
    Json rows = Json::array();
    for (const auto& [key, figures] : measured_) {
      const RepeatedTime time = repeated(figures.seconds);
      rows.push_back({{"system", key.first}, {"operation", key.second}, {"bytes", subject_.bytes()}});
      rows.back().update({{"seconds", time.p50}, {"seconds_min", time.min}, {"stall_s", nullptr}});
      if (figures.stall.empty()) continue;
      const RepeatedTime stall = repeated(figures.stall);
      rows.back().update({{"stall_s", stall.p50}, {"stall_s_min", stall.min}});
    }
    const auto add = [&](const Ratio& ratio) { rows.push_back(ratio_row(ratio)); };
    const PeerRatio faster =
        peer_ratio(repeated(measured_.at({"rondo", "async_save"}).stall), time("memcpy"));
    add({"time", "async_save stall", "memcpy", 1 / faster.value, 1.2, false, faster.of_minima});
    for (const auto& [of, to] : {std::pair("disk_write", "save"), std::pair("disk_read", "cold_load")}) {
      const PeerRatio share = peer_ratio(time(to), time(of, "disk"));
      add({"time", of, to, share.value, 0.8, true, share.of_minima});
    }
    if (!measured_.contains({"pytorch", "save"})) return rows;
    for (const char* operation : {"save", "load"}) {
      const PeerRatio ratio = peer_ratio(time(operation), time(operation, "pytorch"));
      add({"time", str("pytorch ", operation), str("rondo ", operation), ratio.value, 2.0, true,
           ratio.of_minima});
    }
    return rows;
  }

 private:
  void touch() { touch_page_cache(folder_ / "touched", subject_.bytes()); }
  void measure(const char* system, const char* operation, const std::function<void()>& action) {
    measured_[{system, operation}].seconds.push_back(timed(action));
  }
  void measure_in_background(const char* operation, const std::function<void()>& begin,
                             const std::function<void()>& finish) {
    Figures& figures = measured_[{"rondo", operation}];
    figures.seconds.push_back(timed([&] {
      figures.stall.push_back(timed(begin));
      finish();
    }));
  }
  // Keeps the state in memory that outlives the ranks, as `rondo train --memory-checkpoint-every` does.
  void run_in_memory() {
    const auto memory = launch::ScratchDirectory::create_in_memory();
    if (memory.path().empty()) throw Error("cannot create a directory in /dev/shm");
    MemoryCheckpointSaver saver(subject_.context(), memory.path());
    const auto save_in_memory = [&] { rondo::save_in_memory(subject_.trainer(), saver); };
    const auto finish = [&] {
      if (const std::string failure = saver.finish(); !failure.empty()) throw Error(failure);
    };
    // The first save allocates the copy's memory; later ones reuse it.
    save_in_memory();
    finish();
    measure_in_background("memory_save", save_in_memory, finish);
    measure("rondo", "memory_load", [&] {
      subject_.trainer().restore(
          newest_memory_checkpoint(subject_.context(), memory.path(), std::nullopt).value());
    });
  }
  RepeatedTime time(const std::string& operation, const std::string& system = "rondo") const {
    return repeated(measured_.at({system, operation}).seconds);
  }

  Subject& subject_;
  fs::path folder_;
  std::map<std::pair<std::string, std::string>, Figures> measured_;
};

Json run_checkpoint(const CheckpointFlags& flags, bool prints) {
  const auto scratch = make_scratch();
  const fs::path folder = (flags.directory.empty() ? fs::path(scratch.path()) : fs::path(flags.directory)) /
                          "rondo-bench-checkpoint";
  fs::create_directories(folder);
  Subject subject(flags.model);
  CheckpointRuns runs(subject, folder);
  StageProgress stage;
  for (int run = 0; run < flags.runs; ++run) {
    stage.begin(str("measuring, run ", run + 1, " of ", flags.runs));
    runs.run_once();
  }
  stage.end();
  if (peers_take_part(flags.peers)) {
    stage.begin("measuring PyTorch");
    runs.add_peer(flags.runs);
    stage.end();
  }
  fs::remove_all(folder);
  Json rows = runs.rows();
  if (prints) {
    Json shown = rows;
    for (Json& row : shown) {
      if (row.contains("bytes"))
        row["mb_per_s"] = row["bytes"].get<double>() / 1e6 / row["seconds_min"].get<double>();
    }
    print_table(shown, {{"system", -10, "system"},
                        {"operation", -12, "operation"},
                        {"p50 s", 10, "seconds", 3},
                        {"min s", 10, "seconds_min", 3},
                        {"stall s", 10, "stall_s", 4},
                        {"MB/s", 10, "mb_per_s"}});
  }
  return rows;
}

}  // namespace

Command add_checkpoint(CLI::App& parent) {
  return add_benchmark<CheckpointFlags>(
      parent,
      {"checkpoint", "Time of saving and loading a training state, compared with disk, memory and PyTorch",
       "Examples:\n  rondo bench checkpoint --directory runs\n  rondo bench checkpoint --peers --json "
       "checkpoint.json\n\nOne process; the state is that of AdamW after one step. seconds_min and "
       "stall_s_min are those of the fastest run."},
      [](CLI::App& app, CheckpointFlags& flags) {
        app.add_option("--model", flags.model, "Built-in GPT whose training state is saved")
            ->check(CLI::IsMember({"gpt-25m", "gpt-tiny"}));
        app.add_option("--directory", flags.directory,
                       "Folder on the disk to measure (default: $TMPDIR or /tmp)");
        add_turns_flag(app, "--runs", flags.runs, "Turns of each operation");
        app.add_flag("--peers", flags.peers, "Measure torch.distributed.checkpoint too");
      },
      run_checkpoint);
}

}  // namespace rondo::bench
