#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "rondo/backend/engine/failure_record.h"
#include "rondo/backend/requests/dense_tensor.h"

namespace rondo::hierarchical {

using StartMessage = std::function<c10::intrusive_ptr<c10d::Work>()>;

// A caller's own message over the engine between hosts: `start` starts it on `tensor.data`, which wait(),
// synchronize() and the future copy back. What the connection does, then or in wait(), is PeerLostError or
// TimeoutError, which name the peer, or the failure in `record` that came before; what the engine has against
// the call itself is the caller's to mend, stays as it is and breaks nothing. `what` says the message: "send
// to rank 3 on host 1"; `peer` is -1 where any rank may send it. `timeout` holds for waits that name none.
c10::intrusive_ptr<c10d::Work> direct_message(const StartMessage& start, DenseTensor tensor, std::string what,
                                              int peer, std::chrono::milliseconds timeout,
                                              FailureRecord record);

}  // namespace rondo::hierarchical
