#include "rondo/train/memory_checkpoint/memory_checkpoint.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "rondo/backend/collectives.h"
#include "rondo/backend/rendezvous.h"
#include "rondo/base/error.h"
#include "rondo/base/log.h"
#include "rondo/base/text.h"
#include "rondo/checkpoint/tensor_file.h"
#include "rondo/env/environment.h"
#include "rondo/env/launcher_files.h"
#include "rondo/format/checkpoint_files.h"
#include "rondo/format/checksum.h"
#include "rondo/format/file.h"
#include "rondo/train/agreement.h"
#include "rondo/train/callback_failures.h"
#include "rondo/train/file_records.h"
#include "rondo/train/memory_checkpoint/memory_checkpoint_root.h"
#include "rondo/train/memory_checkpoint/newest_memory_checkpoint.h"
#include "rondo/train/memory_checkpoint_hosts.h"
#include "rondo/train/neighbour_copy.h"
#include "rondo/train/trainer.h"

namespace rondo {

void MemoryCheckpoint::on_train_begin(Trainer& trainer, const FitOutline&) {
  saver_.emplace(trainer.strategy().context(), options_.root);
}

void MemoryCheckpoint::on_step_complete(Trainer& trainer, const StepRecord& record) {
  if (record.step % options_.every_steps != 0) return;
  try {
    save_in_memory(trainer, *saver_);
  } catch (const CallbackFailed&) {
    throw;
  } catch (const AgreedError& error) {
    if (trainer.strategy().context().rank() == 0)
      log::warning("the memory checkpoint of step ", record.step, " could not be started: ", error.what(),
                   "; training continues, and the previous memory checkpoint is kept");
  }
}

void MemoryCheckpoint::on_train_end(Trainer&, const FitResult&) { saver_.reset(); }

std::optional<std::filesystem::path> memory_checkpoint_root(const std::filesystem::path& run_directory) {
  const env::EnvironmentMap environment = env::process_environment();
  const auto memory = env::lookup(environment, env::kJobMemoryVariable);
  if (!memory) return std::nullopt;
  std::string host = str("host-", env::lookup(environment, kHostVariable).value_or(""));
  std::replace_if(
      host.begin(), host.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '-');
  const std::string run = std::filesystem::absolute(run_directory).lexically_normal().string();
  return std::filesystem::path(*memory) / host / str("run-", checksum_hex(as_bytes(run)).substr(0, 16));
}

namespace fs = std::filesystem;
namespace {

// A file of a memory checkpoint, and the hosts that have an intact copy.
struct HeldFile {
  FileRecord record;
  std::set<int> hosts;
};
using HeldFiles = std::map<std::string, HeldFile>;

// Returns the state of a host's copy of a step, on the host's leader.
nlohmann::json state_of_copy(const fs::path& checkpoint) {
  nlohmann::json state{{"files", nlohmann::json::array()}, {"damage", nlohmann::json::array()}};
  if (!fs::exists(checkpoint)) return state;
  try {
    const CheckpointFiles files(checkpoint);
    std::set<std::string> damaged;
    for (const Damage& damage : damage_of(files)) {
      damaged.insert(damage.file);
      state["damage"].push_back(describe({damage}));
    }
    std::vector<FileRecord> intact;
    for (const FileRecord& file : files.manifest().files) {
      if (!damaged.contains(file.name)) intact.push_back(file);
    }
    state["files"] = to_json(intact);
  } catch (const DataError& error) {
    state["damage"].push_back(error.what());
  }
  return state;
}

// Returns 4 for "model-00002-of-00004.safetensors", 0 for any other name.
int parts_by_name(const std::string& name) {
  constexpr std::string_view between = "-of-";
  const std::size_t place = name.find(between);
  int parts = 0;
  if (place != std::string::npos)
    std::from_chars(name.data() + place + between.size(), name.data() + name.size(), parts);
  return parts;
}

// Returns the first missing file of a checkpoint; empty if it is complete.
std::string missing_file(const HeldFiles& files) {
  int parts = 1;
  for (const auto& [name, file] : files) parts = std::max(parts, parts_by_name(name));
  if (!files.contains("state.json")) return "state.json";
  for (int number = 0; number < parts; ++number) {
    for (const char* kind : {"model", "optimizer"}) {
      if (std::string name = part_name(kind, number, parts); !files.contains(name)) return name;
    }
  }
  return {};
}

class Finder {
 public:
  Finder(const Context& context, fs::path root)
      : context_(context), root_(std::move(root)), hosts_(context_, root_) {
    if (hosts_.leads()) remove_abandoned_checkpoints(root_);
  }

  std::optional<fs::path> find(std::optional<std::int64_t> newer_than) {
    nlohmann::json own = nlohmann::json::array();
    if (hosts_.leads()) {
      for (const CheckpointEntry& entry : step_directories(root_)) own.push_back(entry.step);
    }
    std::set<std::int64_t, std::greater<>> steps;
    for (const nlohmann::json& told : all_gather_object(own, context_.world())) {
      for (const nlohmann::json& step : told) steps.insert(step.get<std::int64_t>());
    }
    for (const std::int64_t step : steps) {
      if (newer_than && step <= *newer_than) break;
      if (is_put_together(step)) return root_ / checkpoint_name(step);
      std::error_code ignored;
      if (hosts_.leads()) fs::remove_all(root_ / checkpoint_name(step), ignored);
    }
    return std::nullopt;
  }

 private:
  void say(std::int64_t step, const std::string& what) const {
    if (context_.rank() == 0) log::warning("the memory checkpoint of step ", step, what);
  }

  HeldFiles held_files(std::int64_t step) const {
    nlohmann::json own;
    if (hosts_.leads()) own = state_of_copy(root_ / checkpoint_name(step));
    const std::vector<nlohmann::json> all = all_gather_object(own, context_.world());
    HeldFiles files;
    for (int host = 0; host < hosts_.count(); ++host) {
      const nlohmann::json& copy = all[static_cast<std::size_t>(hosts_.leader(host))];
      for (const nlohmann::json& damage : copy["damage"])
        say(step, str(" of host ", host, " is damaged: ", damage.get<std::string>()));
      for (FileRecord& file : parse_file_records(copy["files"])) {
        HeldFile& held = files[file.name];
        held.hosts.insert(host);
        held.record = std::move(file);
      }
    }
    return files;
  }

  bool is_put_together(std::int64_t step) const {
    const HeldFiles files = held_files(step);
    if (const std::string missing = missing_file(files); !missing.empty()) {
      say(step, str(" cannot be used: no host has ", missing, " as it was written"));
      return false;
    }
    try {
      send_around(step, files);
      return true;
    } catch (const AgreedError& error) {
      say(step, str(" could not be put together: ", error.what()));
      return false;
    }
  }

  // Sends files between hosts, so that every host has every file.
  void send_around(std::int64_t step, const HeldFiles& files) const {
    const fs::path here = root_ / checkpoint_name(step);
    std::vector<bool> lacks(static_cast<std::size_t>(hosts_.count()), false);
    for (const auto& [name, file] : files) {
      for (int host = 0; host < hosts_.count(); ++host)
        if (!file.hosts.contains(host)) lacks[static_cast<std::size_t>(host)] = true;
    }
    std::unique_ptr<CheckpointWriter> writer;
    run_agreed(context_, [&] {
      if (!hosts_.leads() || !lacks[static_cast<std::size_t>(hosts_.own())]) return;
      writer = std::make_unique<CheckpointWriter>(root_, step);
      for (const auto& [name, file] : files) {
        if (!file.hosts.contains(hosts_.own())) continue;
        if (!writer->link(here / name, file.record))
          throw DataError(str((here / name).string(), " changed while it was copied"));
      }
    });
    std::string failure;
    for (const auto& [name, file] : files) {
      if (static_cast<int>(file.hosts.size()) == hosts_.count()) continue;
      const bool wanted = writer && !file.hosts.contains(hosts_.own());
      const std::string own =
          broadcast_file(context_.world(), hosts_.leader(*file.hosts.begin()), here / name, file.record.bytes,
                         wanted ? writer->directory() / name : fs::path());
      if (failure.empty()) failure = own;
      if (wanted) writer->add(file.record);
    }
    run_agreed(context_, [&] {
      if (!failure.empty()) throw Error(failure);
      if (writer) writer->commit(2);
    });
  }

  const Context& context_;
  const fs::path root_;
  const MemoryCheckpointHosts hosts_;
};

}  // namespace

std::optional<fs::path> newest_memory_checkpoint(const Context& context, const fs::path& root,
                                                 std::optional<std::int64_t> newer_than) {
  try {
    return Finder(context, root).find(newer_than);
  } catch (const AgreedError& error) {
    if (context.rank() == 0) log::warning("cannot look for a memory checkpoint: ", error.what());
    return std::nullopt;
  }
}

}  // namespace rondo
