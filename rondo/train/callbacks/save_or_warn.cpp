#include "rondo/train/callbacks/save_or_warn.h"

#include "rondo/base/error.h"
#include "rondo/base/log.h"
#include "rondo/train/callback_failures.h"

namespace rondo {
namespace {

void warn(const Trainer& trainer, const char* what, const Error& error) {
  if (trainer.strategy().context().rank() != 0) return;
  log::warning(what, " of step ", trainer.position().step, " could not be written: ", error.what(),
               "; training goes on, and the older checkpoints stand");
}

}  // namespace

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
