#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "rondo/train/agreement.h"
#include "rondo/train/callback.h"

namespace rondo {

// What a callback threw when a checkpoint was about to be written, which was not. Whoever goes on where a
// checkpoint cannot be written does not go on here.
class CallbackFailed final : public AgreedError {
 public:
  using AgreedError::AgreedError;
};

// What callbacks of one rank throw. The other ranks do not know of it and go on with what all do together, so
// this rank does too, and the first failure is kept until they agree on it (run_agreed). One thread.
class CallbackFailures {
 public:
  // Calls `hook` with each of `callbacks`, whatever the ones before have thrown. An AgreedError or a
  // CommunicationError, which other ranks have too, is thrown at once.
  void tell(const Context& context, const std::vector<std::shared_ptr<Callback>>& callbacks,
            const std::function<void(Callback&)>& hook);
  bool any() const { return first_ != nullptr; }
  void forget() { first_ = nullptr; }
  // Throws the first failure, with the callback's name where there are several ranks, and forgets it.
  void rethrow();
  // Throws CallbackFailed on all ranks when there is a failure on some. Collective.
  void agree(const Context& context);

 private:
  std::exception_ptr first_;
};

}  // namespace rondo
