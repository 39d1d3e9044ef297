#include "rondo/train/callback_failures.h"

#include <utility>

#include "rondo/base/error.h"
#include "rondo/base/printable.h"
#include "rondo/base/text.h"

namespace rondo {

void CallbackFailures::tell(const Context& context, const std::vector<std::shared_ptr<Callback>>& callbacks,
                            const std::function<void(Callback&)>& hook) {
  const auto keep = [this](std::exception_ptr failure) {
    if (!first_) first_ = std::move(failure);
  };
  for (const auto& callback : callbacks) {
    try {
      hook(*callback);
    } catch (const AgreedError&) {
      throw;
    } catch (const CommunicationError&) {
      throw;
    } catch (const std::exception& error) {
      const std::string message = str(callback->name(), ": ", plain_message(error));
      if (context.world_size() == 1) {
        keep(std::current_exception());
      } else if (dynamic_cast<const UsageError*>(&error) != nullptr) {
        keep(std::make_exception_ptr(UsageError(message)));
      } else {
        keep(std::make_exception_ptr(Error(message)));
      }
    }
  }
}

void CallbackFailures::rethrow() {
  if (first_) std::rethrow_exception(std::exchange(first_, nullptr));
}

void CallbackFailures::agree(const Context& context) {
  try {
    run_agreed(context, [this] { rethrow(); });
  } catch (const AgreedError& error) {
    throw CallbackFailed(error.what(), error.exit_code(), error.is_reporter());
  } catch (const CommunicationError&) {
    throw;
  } catch (const UsageError& error) {  // on a single process, as below
    throw CallbackFailed(error.what(), ExitCode::usage, true);
  } catch (const std::exception& error) {
    throw CallbackFailed(error.what(), ExitCode::failed, true);
  }
}

}  // namespace rondo
