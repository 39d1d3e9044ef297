#include "rondo/collective/shared_memory/message.h"

#include <algorithm>
#include <cstring>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo::shared_memory {
namespace {

// Copies between a ring position and plain memory, around the end of the ring.
void write_ring(MessageRing& ring, std::uint64_t position, const std::byte* from, std::size_t count) {
  const std::size_t at = position % kMessageRingBytes;
  const std::size_t first = std::min(count, kMessageRingBytes - at);
  std::memcpy(ring.data + at, from, first);
  std::memcpy(ring.data, from + first, count - first);
}

void read_ring(const MessageRing& ring, std::uint64_t position, std::byte* to, std::size_t count) {
  const std::size_t at = position % kMessageRingBytes;
  const std::size_t first = std::min(count, kMessageRingBytes - at);
  std::memcpy(to, ring.data + at, first);
  std::memcpy(to + first, ring.data, count - first);
}

}  // namespace

Messages::Messages(const Peers& peers)
    : peers_(peers),
      incoming_(static_cast<std::size_t>(peers.size())),
      outgoing_(static_cast<std::size_t>(peers.size())) {}

std::shared_ptr<Message> Messages::send(Message message) {
  auto shared = std::make_shared<Message>(message);
  outgoing_[static_cast<std::size_t>(message.peer)].queue.push_back(shared);
  return shared;
}

std::shared_ptr<Message> Messages::receive(Message message) {
  auto shared = std::make_shared<Message>(message);
  incoming_[static_cast<std::size_t>(message.peer)].posted.push_back(shared);
  return shared;
}

bool Messages::progress() {
  bool moved = false;
  for (int r = 0; r < peers_.size(); ++r) {
    const auto at = static_cast<std::size_t>(r);
    if (!outgoing_[at].queue.empty()) moved |= push(r, outgoing_[at]);
    Incoming& incoming = incoming_[at];
    if (!incoming.posted.empty()) moved |= deliver_early(r, incoming);
    if (!incoming.posted.empty() || incoming.arriving) moved |= pull(r, incoming);
  }
  return moved;
}

int Messages::pending_source(int tag) {
  for (int r = 0; r < peers_.size(); ++r) {
    Incoming& incoming = incoming_[static_cast<std::size_t>(r)];
    while (pull(r, incoming)) {
    }
    for (const auto& early : incoming.early) {
      if (early->frame.tag == tag) return r;
    }
  }
  return -1;
}

bool Messages::push(int peer, Outgoing& outgoing) {
  MessageRing& ring = peers_.segment(peer).ring_from(peers_.rank());
  bool moved = false;
  while (!outgoing.queue.empty()) {
    Message& message = *outgoing.queue.front();
    std::uint64_t written = ring.written.load();
    std::uint64_t room = kMessageRingBytes - (written - ring.read.load());
    if (!outgoing.framed) {
      if (room < sizeof(Frame)) break;
      const Frame frame{message.bytes, message.tag, message.type, {}};
      write_ring(ring, written, reinterpret_cast<const std::byte*>(&frame), sizeof(frame));
      written += sizeof(frame);
      room -= sizeof(frame);
      outgoing.framed = true;
      moved = true;
    }
    const std::size_t count = std::min(room, message.bytes - message.moved);
    write_ring(ring, written, message.data + message.moved, count);
    message.moved += count;
    moved |= count > 0;
    ring.written.store(written + count);
    if (message.moved < message.bytes) break;
    message.done = true;
    outgoing.framed = false;
    outgoing.queue.pop_front();
  }
  return moved;
}

void Messages::match(const Frame& frame, const Message& message, int peer) const {
  if (frame.bytes == message.bytes && frame.type == message.type) return;
  throw MismatchError(
      str("recv with tag ", message.tag, " on ", peers_.self(), " expects ",
          message.bytes / element_bytes(message.type), " x ", name(message.type), ", but ", peers_.who(peer),
          " sent ", frame.bytes / element_bytes(frame.type), " x ", name(frame.type)),
      {peer});
}

bool Messages::deliver_early(int peer, Incoming& incoming) {
  bool moved = false;
  for (auto posted = incoming.posted.begin(); posted != incoming.posted.end();) {
    const auto early = std::find_if(incoming.early.begin(), incoming.early.end(),
                                    [&](const auto& e) { return e->frame.tag == (*posted)->tag; });
    if (early == incoming.early.end() || !(*early)->complete) {
      ++posted;
      continue;
    }
    match((*early)->frame, **posted, peer);
    std::memcpy((*posted)->data, (*early)->data.data(), (*early)->data.size());
    (*posted)->done = true;
    incoming.early.erase(early);
    posted = incoming.posted.erase(posted);
    moved = true;
  }
  return moved;
}

bool Messages::begin_arrival(int peer, Incoming& incoming) {
  MessageRing& ring = peers_.own().ring_from(peer);
  const std::uint64_t read = ring.read.load();
  if (ring.written.load() - read < sizeof(Frame)) return false;
  read_ring(ring, read, reinterpret_cast<std::byte*>(&incoming.frame), sizeof(Frame));
  ring.read.store(read + sizeof(Frame));
  incoming.arriving = true;
  incoming.got = 0;
  incoming.target = nullptr;
  incoming.early_target = nullptr;
  // A message of the same tag that came early goes to the earlier receive.
  const bool overtakes = std::any_of(incoming.early.begin(), incoming.early.end(),
                                     [&](const auto& e) { return e->frame.tag == incoming.frame.tag; });
  const auto posted = std::find_if(incoming.posted.begin(), incoming.posted.end(),
                                   [&](const auto& m) { return m->tag == incoming.frame.tag; });
  if (posted != incoming.posted.end() && !overtakes) {
    match(incoming.frame, **posted, peer);
    incoming.target = *posted;
    incoming.posted.erase(posted);
  } else {
    auto early = std::make_unique<Early>();
    early->frame = incoming.frame;
    early->data.resize(incoming.frame.bytes);
    incoming.early_target = early.get();
    incoming.early.push_back(std::move(early));
  }
  return true;
}

bool Messages::pull(int peer, Incoming& incoming) {
  bool moved = false;
  if (!incoming.arriving) {
    if (!begin_arrival(peer, incoming)) return false;
    moved = true;
  }
  MessageRing& ring = peers_.own().ring_from(peer);
  const std::uint64_t read = ring.read.load();
  const std::size_t count = std::min(ring.written.load() - read, incoming.frame.bytes - incoming.got);
  std::byte* to = incoming.target != nullptr ? incoming.target->data : incoming.early_target->data.data();
  read_ring(ring, read, to + incoming.got, count);
  ring.read.store(read + count);
  incoming.got += count;
  if (incoming.got == incoming.frame.bytes) {
    if (incoming.target != nullptr) {
      incoming.target->done = true;
    } else {
      incoming.early_target->complete = true;
    }
    incoming.arriving = false;
    incoming.target = nullptr;
    return true;
  }
  return moved || count > 0;
}

}  // namespace rondo::shared_memory
