#include "rondo/train/callbacks/save_or_warn.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <system_error>
#include <vector>

#include "rondo/base/error.h"
#include "rondo/base/log.h"
#include "rondo/base/text.h"
#include "rondo/train/agreement.h"
#include "rondo/train/callback_failures.h"

namespace rondo {
namespace {

void warn(const Trainer& trainer, const char* what, const Error& error) {
  if (trainer.strategy().context().rank() != 0) return;
  log::warning(what, " of step ", trainer.position().step, " could not be written: ", error.what(),
               "; training goes on, and the older checkpoints stand");
}

// The folder and those above it that do not exist, the innermost first.
std::vector<std::filesystem::path> missing_folders(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> missing;
  std::error_code unknown;
  for (std::filesystem::path folder = directory;
       !folder.empty() && !std::filesystem::exists(folder, unknown) && !unknown;
       folder = folder.parent_path())
    missing.push_back(folder);
  return missing;
}

// Tried out: permissions say nothing of file systems that are read-only, and of root.
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
    // Of one process alone, which needs nobody's agreement.
    if (trainer.strategy().context().world_size() > 1) throw;
    warn(trainer, what, error);
  }
}

}  // namespace rondo
