#pragma once

#include <memory>

#include "rondo/channel/channel.h"

namespace rondo {

// Channels between ranks that are threads of one process. Messages are not buffered: the receiver reads the
// sender's memory, and the sender returns afterwards. So a program that works with these channels works with
// any channel.
//
// A sender whose wait has ended still waits for a receiver that is reading its message at that moment.
//
// Destroying a channel while others wait for its rank counts as a lost peer.
class ThreadMesh {
 public:
  explicit ThreadMesh(int size);
  // Returns the channel of one rank; call it once per rank. The channel may outlive the mesh.
  std::unique_ptr<Channel> connect(int rank) const;

 private:
  struct State;
  class Member;
  std::shared_ptr<State> state_;
};

}  // namespace rondo
