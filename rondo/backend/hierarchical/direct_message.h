#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "rondo/backend/hierarchical/failure_record.h"

namespace rondo::hierarchical {

using StartMessage = std::function<c10::intrusive_ptr<c10d::Work>()>;

// A caller's own message over the engine between hosts: `start` starts it. What goes wrong, then or in
// wait(), is PeerLostError or TimeoutError, which name the peer, or the failure in `record` that came before.
// `what` says the message: "send to rank 3 on host 1"; `peer` is -1 where any rank may send it. `timeout`
// holds for waits that name none.
c10::intrusive_ptr<c10d::Work> direct_message(const StartMessage& start, std::string what, int peer,
                                              std::chrono::milliseconds timeout, FailureRecord record);

}  // namespace rondo::hierarchical
