#include "rondo/train/parts_saver.h"

#include <torch/types.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <optional>
#include <string>
#include <thread>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/log.h"
#include "rondo/base/replica.h"
#include "rondo/base/text.h"
#include "rondo/format/file.h"
#include "rondo/train/agreement.h"
#include "rondo/train/file_records.h"

namespace rondo {
namespace fs = std::filesystem;
namespace {

// Interval at which rank 0 polls for the other ranks' parts.
constexpr auto kLook = std::chrono::milliseconds(2);

// Returns the name of the file in which a rank reports to rank 0 that its part is written: the manifest's
// records of the part's files, or a failure.
std::string record_name(int rank) { return str(".part-", rank, ".json"); }

// Renames the file when it is complete.
void leave_record(const fs::path& directory, int rank, const std::string& text) {
  const fs::path unfinished = directory / str(".part-", rank, ".unfinished");
  OutputFile file(unfinished, OutputFile::Mode::create);
  file.write(text);
  file.close();
  fs::rename(unfinished, directory / record_name(rank));
}

void write_own_part(const fs::path& directory, const CheckpointPart& part) {
  try {
    const nlohmann::json files = to_json(write_part(directory, part));
    leave_record(directory, part.number, nlohmann::json{{"files", files}}.dump());
  } catch (const std::exception& error) {
    try {
      leave_record(directory, part.number, nlohmann::json{{"failure", error.what()}}.dump());
    } catch (const std::exception&) {
      // Ignores errors: a full disk may have no room for this file either, and finish() reports the failure.
    }
    throw;
  }
}

}  // namespace

// One checkpoint that is being written.
class PartsSaver::Writing {
 public:
  Writing(const Context& context, const Request& request, fs::path directory,
          std::unique_ptr<CheckpointWriter> writer, CheckpointPart part, CheckpointContents rest)
      : rank_(context.rank()),
        request_(request),
        directory_(std::move(directory)),
        writer_(std::move(writer)),
        part_(std::move(part)),
        rest_(std::move(rest)) {}
  ~Writing() { end(/*drops=*/true); }
  Writing(const Writing&) = delete;
  Writing& operator=(const Writing&) = delete;

  void write() { write_own_part(directory_, part_); }

  // Waits for all parts and completes the checkpoint, on rank 0.
  void commit() {
    for (int rank = 0; rank < part_.count; ++rank) {
      const fs::path record = directory_ / record_name(rank);
      while (!fs::exists(record)) {
        if (drops_) throw CancelledError("the checkpoint was dropped before all its parts were written");
        std::this_thread::sleep_for(kLook);
      }
      const nlohmann::json said = read_json_file(record);
      if (said.contains("failure"))
        throw Error(str("rank ", rank, ": ", said.at("failure").get<std::string>()));
      for (FileRecord& file : parse_file_records(said.at("files"))) writer_->add(std::move(file));
      fs::remove(record);
    }
    write_rest(*writer_, rest_);
    writer_->commit(request_.keep);
  }

  void start() {
    thread_ = replica_thread([this] {
      try {
        write();
        part_written_ = true;
        if (rank_ == 0) commit();
      } catch (const CancelledError&) {
      } catch (const std::exception& error) {
        failure_ = error.what();
        if (rank_ == 0)
          log::warning("the checkpoint of step ", request_.step, " could not be written: ", failure_,
                       "; training continues, and older checkpoints are kept");
      }
      part_written_ = true;
    });
  }

  // Returns this rank's failure, or an empty text. Waits for this rank's part only.
  std::string wait_for_part() {
    while (!part_written_) std::this_thread::sleep_for(kLook);
    if (rank_ != 0) end(/*drops=*/false);
    return rank_ == 0 ? std::string() : failure_;
  }
  std::string wait_for_commit(bool drops) {
    end(drops);
    return failure_;
  }

 private:
  void end(bool drops) {
    if (drops) drops_ = true;
    if (thread_.joinable()) thread_.join();
    writer_.reset();  // removes an incomplete checkpoint
  }

  const int rank_;
  const Request request_;
  const fs::path directory_;
  std::unique_ptr<CheckpointWriter> writer_;  // on rank 0; used by the thread while it runs
  const CheckpointPart part_;
  const CheckpointContents rest_;
  std::atomic<bool> drops_ = false;
  std::atomic<bool> part_written_ = false;
  std::string failure_;  // written by the thread, read after it is joined
  std::thread thread_;
};

PartsSaver::PartsSaver() = default;
PartsSaver::~PartsSaver() = default;

void PartsSaver::abandon() noexcept { writing_.reset(); }

void PartsSaver::save(const Context& context, const Request& request, ShardedState state,
                      const NamedTensors& model, CheckpointContents rest) {
  try {
    finish(context);
  } catch (const AgreedError&) {
    // The failure was already reported.
  }
  if (context.rank() == 0) rest.optimizers[kOptimizerName] = std::move(state.optimizer_description);
  const at::NoGradGuard no_gradient;
  CheckpointPart part = own_part_.take(context, std::move(state), model, request.in_background);

  std::unique_ptr<CheckpointWriter> writer;
  run_agreed(context, [&] {
    if (context.rank() != 0) return;
    remove_abandoned_checkpoints(request.root);
    writer = std::make_unique<CheckpointWriter>(request.root, request.step);
  });
  const nlohmann::json told =
      broadcast_object(writer ? writer->directory().string() : std::string(), context.world(), 0);
  const fs::path directory = told.get<std::string>();
  run_agreed(context, [&] {
    if (!fs::is_directory(directory))
      throw Error(str("host ", context.host(), " does not see ", directory.string(),
                      ": a checkpoint that all ranks write needs a directory that all hosts share"));
  });
  auto writing = std::make_unique<Writing>(context, request, directory, std::move(writer), std::move(part),
                                           std::move(rest));
  if (request.in_background) {
    writing_ = std::move(writing);
    writing_->start();
    return;
  }
  run_agreed(context, [&] { writing->write(); });
  run_agreed(context, [&] {
    if (context.rank() == 0) writing->commit();
  });
}

void PartsSaver::finish(const Context& context) {
  if (!writing_) return;
  const std::unique_ptr<Writing> writing = std::move(writing_);
  // Rank 0 waits for the other parts only if all ranks have written theirs.
  std::optional<AgreedError> failure;
  try {
    run_agreed(context, [&] {
      if (const std::string own = writing->wait_for_part(); !own.empty()) throw Error(own);
    });
  } catch (const AgreedError& error) {
    failure = error;
  }
  run_agreed(context, [&] {
    const std::string last = writing->wait_for_commit(/*drops=*/failure.has_value());
    if (context.rank() == 0 && !failure && !last.empty()) throw Error(last);
  });
  if (failure) throw *failure;
}

}  // namespace rondo
