#include "rondo/train/callbacks/model_checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/base/log.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"
#include "rondo/train/agreement.h"
#include "rondo/train/callback_failures.h"
#include "rondo/train/callbacks/backup_and_restore.h"
#include "rondo/train/callbacks/preemption.h"
#include "rondo/train/callbacks/save_or_warn.h"
#include "rondo/train/trainer.h"

namespace rondo {
namespace {

void warn(const Trainer& trainer, const char* what, const Error& error) {
  if (trainer.strategy().context().rank() != 0) return;
  log::warning(what, " of step ", trainer.position().step, " could not be written: ", error.what(),
               "; training continues, and older checkpoints are kept");
}

// Returns the folder and its parents that do not exist, innermost first.
std::vector<std::filesystem::path> missing_folders(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> missing;
  std::error_code unknown;
  for (std::filesystem::path folder = directory;
       !folder.empty() && !std::filesystem::exists(folder, unknown) && !unknown;
       folder = folder.parent_path())
    missing.push_back(folder);
  return missing;
}

// Creates a file to find out, because permissions do not reveal read-only file systems, and do not limit
// root.
void try_to_write(const std::filesystem::path& directory, bool keep_folder) {
  const auto fail = [&](const std::string& reason) {
    throw Error(str("checkpoints cannot be written to ", directory.string(), ": ", reason,
                    "; make it writable, or choose another directory"));
  };
  const std::vector<std::filesystem::path> missing = missing_folders(directory);
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) fail(error.message());
  std::string probe = (directory / ".probe-XXXXXX").string();
  const int file = ::mkstemp(probe.data());
  const int code = errno;
  if (file >= 0) {
    ::close(file);
    ::unlink(probe.c_str());
  }
  for (const std::filesystem::path& folder : missing) {
    if (!keep_folder) ::rmdir(folder.c_str());
  }
  if (file < 0) fail(errno_text(code));
}

}  // namespace

void require_writable(const Context& context, const std::filesystem::path& directory, bool on_all_ranks) {
  run_agreed(context, [&] {
    if (on_all_ranks || context.rank() == 0) try_to_write(directory, on_all_ranks);
  });
}

void save_or_warn(const Trainer& trainer, const char* what, const std::function<void()>& save) {
  try {
    save();
  } catch (const CallbackFailed&) {
    throw;
  } catch (const AgreedError& error) {
    warn(trainer, what, error);
  } catch (const Error& error) {
    // Errors of a single process need no agreement.
    if (trainer.strategy().context().world_size() > 1) throw;
    warn(trainer, what, error);
  }
}

void ModelCheckpoint::on_train_begin(Trainer& trainer, const FitOutline& outline) {
  if (!options_.best_of.empty()) best_.require_validation(outline);
  require_writable(trainer.strategy().context(), options_.directory, options_.in_parts);
  // The checkpoint does not yet include the effects of a validation that was due.
  saved_step_ = outline.validation_due ? -1 : outline.first_step;
  replaced_ = trainer.times_replaced();
}

void ModelCheckpoint::on_epoch_end(Trainer&, const EpochRecord& record) {
  if (options_.best_of.empty() && options_.every_steps == 0)
    due_ = (record.epoch + 1) % std::max<std::int64_t>(1, options_.every_epochs) == 0;
}

void ModelCheckpoint::on_validation_end(Trainer&, const ValidationRecord& record) {
  if (!options_.best_of.empty()) due_ = best_.improves(record);
}

void ModelCheckpoint::on_step_complete(Trainer& trainer, const StepRecord& record) {
  if (options_.best_of.empty() && options_.every_steps > 0) due_ = record.step % options_.every_steps == 0;
  if (!due_) return;
  save_or_warn(trainer, "the checkpoint", [&] { save(trainer); });
}

void ModelCheckpoint::on_train_end(Trainer& trainer, const FitResult&) {
  if (options_.best_of.empty() || due_) save(trainer);
  trainer.finish_save();
}

nlohmann::json ModelCheckpoint::state() const {
  return options_.best_of.empty() ? nlohmann::json() : nlohmann::json{{"best", best_.state()}};
}

void ModelCheckpoint::restore(const nlohmann::json& state) {
  if (!state.is_null()) best_.restore(state.at("best"));
}

void ModelCheckpoint::save(Trainer& trainer) {
  due_ = false;
  if (saved_step_ == trainer.position().step && replaced_ == trainer.times_replaced()) return;
  trainer.save(options_.directory, SaveOptions{.keep = options_.keep,
                                               .in_parts = options_.in_parts,
                                               .in_background = options_.in_background,
                                               .incremental = options_.incremental,
                                               .of_validation = !options_.best_of.empty()});
  saved_step_ = trainer.position().step;
  replaced_ = trainer.times_replaced();
}

void BackupAndRestore::before_fit(Trainer& trainer) {
  if (trainer.position().step > 0) return;
  const Context& context = trainer.strategy().context();
  // Rank 0's disk decides for all ranks.
  const bool here = context.rank() == 0 && std::filesystem::exists(options_.directory) &&
                    !std::filesystem::is_empty(options_.directory);
  if (broadcast_object(here, context.world()).get<bool>()) trainer.restore(options_.directory);
}

void BackupAndRestore::on_train_begin(Trainer& trainer, const FitOutline&) {
  require_writable(trainer.strategy().context(), options_.directory);
}

void BackupAndRestore::on_epoch_end(Trainer&, const EpochRecord&) { due_ = options_.every_steps == 0; }

void BackupAndRestore::on_step_complete(Trainer& trainer, const StepRecord& record) {
  due_ = due_ || (options_.every_steps > 0 && record.step % options_.every_steps == 0);
  if (!std::exchange(due_, false)) return;
  save_or_warn(trainer, "the backup", [&] { trainer.save(options_.directory, 1); });
}

void BackupAndRestore::on_train_end(Trainer& trainer, const FitResult& result) {
  if (result.end == FitEnd::preempted) {
    trainer.save(options_.directory, 1);
  } else if (trainer.strategy().context().rank() == 0) {
    std::filesystem::remove_all(options_.directory);
  }
}

namespace {

// A signal handler can only set a flag.
volatile std::sig_atomic_t preemption_announced = 0;

void announce_preemption(int) { preemption_announced = 1; }

constexpr Duration kNoticeInterval = std::chrono::seconds(1);

}  // namespace

std::function<bool()> Preemption::stop_request() {
  give_back_signals();
  preemption_announced = 0;
  for (const int signal : options_.signals)
    former_.emplace_back(signal, std::signal(signal, announce_preemption));
  // The first call always checks the file.
  auto looked = std::make_shared<std::optional<TimePoint>>();
  return [file = options_.notice_file, looked] {
    if (preemption_announced != 0) return true;
    if (file.empty()) return false;
    const TimePoint now = Clock::now();
    if (*looked && now - **looked < kNoticeInterval) return false;
    *looked = now;
    std::error_code ignored;
    return std::filesystem::exists(file, ignored);
  };
}

void Preemption::give_back_signals() noexcept {
  for (const auto& [signal, handler] : former_) std::signal(signal, handler);
  former_.clear();
}

}  // namespace rondo
