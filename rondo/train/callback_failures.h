#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "rondo/train/agreement.h"
#include "rondo/train/callback.h"

namespace rondo {

// An exception of a callback before a checkpoint, which is therefore not written. Unlike an unwritable
// checkpoint, it ends training.
class CallbackFailed final : public AgreedError {
 public:
  using AgreedError::AgreedError;
};

// A collector of exceptions that callbacks throw on one rank. Other ranks do not receive them and continue,
// so this rank continues too. The first failure is kept until the ranks agree on it (run_agreed). Used by one
// thread.
class CallbackFailures {
 public:
  // Calls `hook` with each of `callbacks`, regardless of earlier exceptions. Rethrows an AgreedError or a
  // CommunicationError at once, because other ranks have it too.
  void tell(const Context& context, const std::vector<std::shared_ptr<Callback>>& callbacks,
            const std::function<void(Callback&)>& hook);
  bool any() const { return first_ != nullptr; }
  void forget() { first_ = nullptr; }
  // Throws and clears the first failure; with several ranks the message has the callback's name.
  void rethrow();
  // Throws CallbackFailed on all ranks if any rank has a failure. Collective.
  void agree(const Context& context);

 private:
  std::exception_ptr first_;
};

}  // namespace rondo
