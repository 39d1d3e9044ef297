#include "rondo/train/memory_checkpoint_saver.h"

#include <exception>
#include <numeric>
#include <set>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/base/log.h"
#include "rondo/base/replica.h"
#include "rondo/base/text.h"
#include "rondo/channel/shared_memory.h"
#include "rondo/format/checkpoint_directory.h"
#include "rondo/format/checksum.h"
#include "rondo/format/file.h"
#include "rondo/train/agreement.h"
#include "rondo/train/file_records.h"
#include "rondo/train/neighbour_copy.h"

namespace rondo {
namespace fs = std::filesystem;

// One memory checkpoint that is being written.
struct MemoryCheckpointSaver::Pending {
  std::int64_t step = 0;
  CheckpointPart part = {};
  CheckpointContents rest = {};                   // on rank 0
  fs::path directory = {};                        // directory on this host, until it is complete
  std::unique_ptr<CheckpointWriter> writer = {};  // on the host's leader
};

namespace {

Group group_of_all(const Context& context) {
  std::vector<int> everyone(static_cast<std::size_t>(context.world_size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  return context.new_group(everyone);
}

std::uint64_t bytes_of_part(const CheckpointPart& part) {
  std::uint64_t sum = 0;
  for (const std::vector<Shard>* list : {&part.model, &part.optimizer}) {
    for (const Shard& shard : *list) sum += shard.local.nbytes();
  }
  return sum;
}

// Returns the records of the files of write_rest().
std::vector<FileRecord> records_of_rest(const fs::path& directory, const std::vector<FileRecord>& parts) {
  std::set<std::string> names;
  for (const FileRecord& part : parts) names.insert(part.name);
  std::vector<FileRecord> records;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (names.contains(name) || name.find("-of-") != std::string::npos) continue;  // files of other ranks
    const MappedFile file(entry.path());
    records.push_back({name, file.bytes().size(), checksum_hex(file.bytes()), {}});
  }
  return records;
}

// A failure that was reported to all ranks, unlike a communication error, which only some may have noticed.
class ToldFailure final : public Error {
 public:
  using Error::Error;
};

// Runs `action` and exchanges its outcome and result between all ranks. Throws ToldFailure on all of them if
// it failed on one.
std::vector<nlohmann::json> tell_all(const Group& group, const std::function<nlohmann::json()>& action) {
  nlohmann::json own;
  try {
    own["said"] = action();
  } catch (const std::exception& error) {
    own["failure"] = error.what();
  }
  std::vector<nlohmann::json> all = all_gather_object(own, group);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].contains("failure"))
      throw ToldFailure(str("rank ", rank, ": ", all[rank]["failure"].get<std::string>()));
  }
  return all;
}

}  // namespace

MemoryCheckpointSaver::MemoryCheckpointSaver(const Context& context, fs::path root)
    : context_(context), root_(std::move(root)), hosts_(context_, root_), group_(group_of_all(context_)) {}

MemoryCheckpointSaver::~MemoryCheckpointSaver() { finish(); }

std::string MemoryCheckpointSaver::finish() {
  if (thread_.joinable()) thread_.join();
  return failure_;
}

void MemoryCheckpointSaver::save(std::int64_t step, ShardedState state, const NamedTensors& model,
                                 CheckpointContents rest) {
  finish();
  failure_.clear();
  auto checkpoint = std::make_unique<Pending>();
  checkpoint->step = step;
  if (context_.rank() == 0) {
    rest.optimizers[kOptimizerName] = std::move(state.optimizer_description);
    checkpoint->rest = std::move(rest);
  }
  checkpoint->part = own_part_.take(context_, std::move(state), model, /*copies=*/true);
  run_agreed(context_, [&] {
    if (!hosts_.leads()) return;
    remove_abandoned_checkpoints(root_);
    // All hosts have the newest memory checkpoint, so the previous one can be deleted.
    prune_checkpoints(root_, 1, step);
    checkpoint->writer = std::make_unique<CheckpointWriter>(root_, step);
  });
  const auto directories = all_gather_object(
      checkpoint->writer ? checkpoint->writer->directory().string() : std::string(), context_.world());
  checkpoint->directory =
      directories[static_cast<std::size_t>(hosts_.leader(hosts_.own()))].get<std::string>();
  thread_ = replica_thread([this, checkpoint = std::move(checkpoint)] {
    try {
      write(*checkpoint);
    } catch (const std::exception& error) {
      failure_ = error.what();
      if (context_.rank() == 0)
        log::warning("the memory checkpoint of step ", checkpoint->step, " could not be written: ", failure_,
                     "; training continues, and the previous memory checkpoint is kept");
    }
    checkpoint->writer.reset();
  });
}

void MemoryCheckpointSaver::write(Pending& checkpoint) const {
  const std::vector<nlohmann::json> told = tell_all(group_, [&] {
    // The kernel does not refuse pages of a file in memory; it kills processes.
    const std::uint64_t copies = hosts_.ranks(hosts_.own()).size() * (hosts_.count() > 1 ? 2 : 1);
    require_room(Bytes{copies * bytes_of_part(checkpoint.part)}, "the memory checkpoints of this host");
    const std::vector<FileRecord> parts = write_part(checkpoint.directory, checkpoint.part);
    nlohmann::json said{{"parts", to_json(parts)}, {"rest", nlohmann::json::array()}};
    if (context_.rank() == 0) {
      write_rest(*checkpoint.writer, checkpoint.rest);
      said["rest"] = to_json(records_of_rest(checkpoint.directory, parts));
    }
    return said;
  });
  if (hosts_.count() > 1) {
    std::vector<std::vector<FileRecord>> files;
    for (const nlohmann::json& rank : told) {
      files.push_back(parse_file_records(rank["said"]["parts"]));
      for (FileRecord& file : parse_file_records(rank["said"]["rest"]))
        files.back().push_back(std::move(file));
    }
    const std::string failure = copy_to_neighbour(group_, hosts_, checkpoint.directory, files);
    tell_all(group_, [&]() -> nlohmann::json {
      if (!failure.empty()) throw Error(failure);
      return nullptr;
    });
  }
  try {
    tell_all(group_, [&]() -> nlohmann::json {
      if (checkpoint.writer) commit(checkpoint, told);
      return nullptr;
    });
  } catch (const ToldFailure&) {
    // Deletes a memory checkpoint that some hosts lack. If ranks have died, it is kept, because it may be the
    // newest one.
    std::error_code ignored;
    if (checkpoint.writer) fs::remove_all(root_ / checkpoint_name(checkpoint.step), ignored);
    throw;
  }
}

void MemoryCheckpointSaver::commit(Pending& checkpoint, const std::vector<nlohmann::json>& told) const {
  const auto add = [&](int rank, const char* list) {
    for (FileRecord& file : parse_file_records(told[static_cast<std::size_t>(rank)]["said"][list]))
      checkpoint.writer->add(std::move(file));
  };
  const int own = hosts_.own();
  for (const int rank : hosts_.ranks(own)) add(rank, "parts");  // write_rest() added rank 0's rest
  if (hosts_.count() > 1) {
    for (const int rank : hosts_.ranks(hosts_.host_before(own))) {
      add(rank, "parts");
      add(rank, "rest");
    }
  }
  checkpoint.writer->commit(hosts_.count() > 1 ? 2 : 1);
}

}  // namespace rondo
