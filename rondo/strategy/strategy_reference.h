#pragma once

#include <memory>
#include <string>

namespace rondo {

class Strategy;

// A reference to a strategy for objects that the strategy must outlive. It detects that the strategy has
// ended, as a temporary one does: Trainer(*all_strategies().make(...), ...).
class StrategyReference {
 public:
  // `holder` is the name of the object that keeps the reference, for the error.
  StrategyReference(Strategy& strategy, std::string holder);

  // Returns the strategy. Throws UsageError if it has ended.
  Strategy& operator*() const;
  // Likewise.
  Strategy* operator->() const { return &**this; }

 private:
  Strategy* strategy_;
  std::weak_ptr<const void> lifetime_;
  std::string holder_;
};

}  // namespace rondo
