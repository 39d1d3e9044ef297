#include "rondo/train/callbacks/side_output.h"

#include <system_error>

#include "rondo/base/error.h"
#include "rondo/base/log.h"
#include "rondo/base/printable.h"
#include "rondo/base/text.h"

namespace rondo {

bool SideOutput::write(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return report(error.what());
  } catch (const std::system_error& error) {
    return report(plain_message(error));
  }
  std::error_code unknown;
  if (!path_.empty() && !std::filesystem::exists(path_, unknown) && !unknown)
    return report(str(path_.string(), " was removed or renamed while it was written"));
  const std::lock_guard lock(mutex_);
  failing_ = false;
  return true;
}

bool SideOutput::report(const std::string& problem) {
  const std::lock_guard lock(mutex_);
  if (!failing_) log::warning(problem, "; training continues without what cannot be written");
  failing_ = true;
  return false;
}

}  // namespace rondo
