#pragma once

#include <memory>

#include "rondo/channel/channel.h"

namespace rondo {

// Channels between ranks that are threads of one process. A message is not buffered: the receiver reads it
// where the sender has it, and the sender returns when that is done. So what works here works on any channel.
//
// A sender whose wait has ended still waits for a receiver that is reading its message at that moment.
//
// A channel that is destroyed while others still wait for its rank counts as a lost peer.
class ThreadMesh {
 public:
  explicit ThreadMesh(int size);
  // The channel of one rank, to be taken once. It may outlive the mesh.
  std::unique_ptr<Channel> connect(int rank) const;

 private:
  struct State;
  class Member;
  std::shared_ptr<State> state_;
};

}  // namespace rondo
