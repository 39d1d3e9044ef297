#pragma once

#include <cstdint>
#include <optional>

#include "rondo/backend/group.h"

namespace rondo {

// The line on which the first rank of a group tells the others, block by block, what it starts next. One
// thread a rank uses it, apart from stop().
class Leader {
 public:
  // `line` has the ranks of the group whose blocks are ordered, and nobody else uses it.
  explicit Leader(Group line) : line_(std::move(line)) {}

  bool leads() const { return line_.rank() == 0; }
  // On the leader: tells all others. Throws CommunicationError.
  void tell(std::uint64_t block);
  // On the others: the next block; empty when the leader has stopped. Waits as long as it takes.
  std::optional<std::uint64_t> hear();
  // On the leader: lets the others' hear() return empty. Never throws.
  void stop() noexcept;

 private:
  Group line_;
};

}  // namespace rondo
