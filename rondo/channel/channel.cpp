#include "rondo/channel/channel.h"

#include <cstring>

namespace rondo {

void Channel::send(int peer, Tag tag, std::span<const std::byte> bytes, const Wait& wait) {
  const Outgoing message{peer, tag, bytes};
  exchange({&message, 1}, {}, wait);
}

void Channel::recv(int peer, Tag tag, std::span<std::byte> bytes, const Wait& wait) {
  const Incoming message{peer, tag, bytes.size(), [&](std::span<const std::byte> piece, std::size_t offset) {
                           std::memcpy(bytes.data() + offset, piece.data(), piece.size());
                         }};
  exchange({}, {&message, 1}, wait);
}

}  // namespace rondo
