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

Messages::Messages(const Peers& peers, OnEnd on_end)
    : peers_(peers),
      incoming_(static_cast<std::size_t>(peers.size())),
      outgoing_(static_cast<std::size_t>(peers.size())),
      on_end_(std::move(on_end)) {}

std::shared_ptr<Message> Messages::send(Message message) {
  auto shared = std::make_shared<Message>(std::move(message));
  shared->is_send = true;
  shared->order = next_order_++;
  outgoing_[static_cast<std::size_t>(shared->peer)].queue.push_back(shared);
  ++under_way_;
  return shared;
}

std::shared_ptr<Message> Messages::receive(Message message) {
  auto shared = std::make_shared<Message>(std::move(message));
  shared->order = next_order_++;
  (shared->peer == kAnyRank ? any_ : incoming_[static_cast<std::size_t>(shared->peer)].posted)
      .push_back(shared);
  ++under_way_;
  return shared;
}

bool Messages::progress() {
  bool moved = false;
  if (!any_.empty()) give_early_to_any();
  for (int r = 0; r < peers_.size(); ++r) {
    const auto at = static_cast<std::size_t>(r);
    if (!outgoing_[at].queue.empty()) moved |= push(r, outgoing_[at]);
    Incoming& incoming = incoming_[at];
    if (!incoming.posted.empty()) moved |= deliver_early(r, incoming);
    if (!incoming.posted.empty() || incoming.arriving || !any_.empty()) moved |= pull(r, incoming);
  }
  return moved;
}

// Matches each receive from any rank with the oldest message of its tag that no receive from that rank has
// matched.
void Messages::give_early_to_any() {
  for (auto message = any_.begin(); message != any_.end();) {
    int source = kAnyRank;
    std::uint64_t oldest = 0;
    for (int r = 0; r < peers_.size(); ++r) {
      const Incoming& incoming = incoming_[static_cast<std::size_t>(r)];
      auto taken = std::count_if(incoming.posted.begin(), incoming.posted.end(),
                                 [&](const auto& posted) { return posted->tag == (*message)->tag; });
      for (const auto& early : incoming.early) {
        if (early->frame.tag != (*message)->tag || taken-- > 0) continue;
        if (source == kAnyRank || early->order < oldest) {
          source = r;
          oldest = early->order;
        }
        break;
      }
    }
    if (source == kAnyRank) {
      ++message;
      continue;
    }
    (*message)->peer = source;
    incoming_[static_cast<std::size_t>(source)].posted.push_back(std::move(*message));
    message = any_.erase(message);
  }
}

void Messages::end(const std::shared_ptr<Message>& message, const std::exception_ptr& error) {
  message->done = true;
  message->error = error;
  --under_way_;
  if (message->owner != nullptr) on_end_(std::move(message->owner), error);
}

template <class Function>
void Messages::for_each(Function function) const {
  for (const Outgoing& outgoing : outgoing_) {
    for (const auto& message : outgoing.queue) function(message);
  }
  for (const Incoming& incoming : incoming_) {
    for (const auto& message : incoming.posted) function(message);
    if (incoming.target != nullptr) function(incoming.target);
  }
  for (const auto& message : any_) function(message);
}

template <class Wanted>
void Messages::end_where(Wanted wanted, const std::exception_ptr& error) {
  std::vector<std::shared_ptr<Message>> ending;
  for_each([&](const auto& message) {
    if (wanted(*message)) ending.push_back(message);
  });
  const auto gone = [&](const auto& message) { return wanted(*message); };
  for (Outgoing& outgoing : outgoing_) {
    // A message that is partly in the ring can be neither continued nor removed, so nothing can follow it.
    if (!outgoing.queue.empty() && gone(outgoing.queue.front())) outgoing.framed = false;
    std::erase_if(outgoing.queue, gone);
  }
  for (Incoming& incoming : incoming_) {
    std::erase_if(incoming.posted, gone);
    // pull() drops the rest of the arriving message.
    if (incoming.target != nullptr && gone(incoming.target)) incoming.target = nullptr;
  }
  std::erase_if(any_, gone);
  for (const auto& message : ending) end(message, error);
}

void Messages::end_all(const std::exception_ptr& error) {
  end_where([](const Message&) { return true; }, error);
}

void Messages::end_receives(const std::exception_ptr& error) {
  end_where([](const Message& message) { return !message.is_send; }, error);
}

void Messages::end_those_without(const std::vector<int>& left) {
  const auto has_left = [&](int rank) { return std::find(left.begin(), left.end(), rank) != left.end(); };
  for (const int rank : left) {
    const auto with_it = [&](const Message& message) { return message.peer == rank; };
    bool any = false;
    for_each([&](const auto& message) { any = any || with_it(*message); });
    if (!any) continue;
    end_where(with_it,
              peers_.cause_of(std::make_exception_ptr(PeerLostError(
                  str("a message between ", peers_.self(), " and ", peers_.who(rank), " cannot complete: ",
                      peers_.who(rank), " has left the group. Did it make fewer calls than this rank?"),
                  {rank}))));
  }
  for (int r = 0; r < peers_.size(); ++r) {
    if (r != peers_.rank() && !has_left(r)) return;
  }
  end_where([](const Message& message) { return message.peer == kAnyRank; },
            std::make_exception_ptr(PeerLostError(str("recv from any rank on ", peers_.self(),
                                                      " cannot complete: all others have left the group"),
                                                  left)));
}

bool Messages::sending() const {
  return std::any_of(outgoing_.begin(), outgoing_.end(),
                     [](const Outgoing& outgoing) { return !outgoing.queue.empty(); });
}

std::shared_ptr<Message> Messages::late() const {
  std::shared_ptr<Message> found;
  for_each([&](const auto& message) {
    if (message->deadline.passed()) found = message;
  });
  return found;
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
    if (count > 0) write_ring(ring, written, message.data + message.moved, count);
    message.moved += count;
    moved |= count > 0;
    ring.written.store(written + count);
    if (message.moved < message.bytes) break;
    outgoing.framed = false;
    const std::shared_ptr<Message> sent = std::move(outgoing.queue.front());
    outgoing.queue.pop_front();
    end(sent, nullptr);
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
    if (!(*early)->data.empty()) std::memcpy((*posted)->data, (*early)->data.data(), (*early)->data.size());
    const std::shared_ptr<Message> received = std::move(*posted);
    incoming.early.erase(early);
    posted = incoming.posted.erase(posted);
    end(received, nullptr);
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
  // An early message of the same tag belongs to the earlier receive.
  const bool overtakes = std::any_of(incoming.early.begin(), incoming.early.end(),
                                     [&](const auto& e) { return e->frame.tag == incoming.frame.tag; });
  incoming.target = overtakes ? nullptr : take_posted(peer, incoming);
  if (incoming.target != nullptr) return true;
  auto early = std::make_unique<Early>();
  early->frame = incoming.frame;
  early->order = next_order_++;
  early->data.resize(incoming.frame.bytes);
  incoming.early_target = early.get();
  incoming.early.push_back(std::move(early));
  return true;
}

// Returns the oldest receive that matches the message that is arriving, or null.
std::shared_ptr<Message> Messages::take_posted(int peer, Incoming& incoming) {
  const auto takes = [&](const auto& message) { return message->tag == incoming.frame.tag; };
  const auto own = std::find_if(incoming.posted.begin(), incoming.posted.end(), takes);
  const auto any = std::find_if(any_.begin(), any_.end(), takes);
  const bool has_own = own != incoming.posted.end();
  if (!has_own && any == any_.end()) return nullptr;
  const bool use_any = !has_own || (any != any_.end() && (*any)->order < (*own)->order);
  std::shared_ptr<Message> message = use_any ? *any : *own;
  match(incoming.frame, *message, peer);
  message->peer = peer;
  if (use_any) {
    any_.erase(any);
  } else {
    incoming.posted.erase(own);
  }
  return message;
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
  std::byte* to = nullptr;
  if (incoming.target != nullptr) to = incoming.target->data;
  if (incoming.early_target != nullptr) to = incoming.early_target->data.data();
  if (to != nullptr && count > 0) read_ring(ring, read, to + incoming.got, count);
  ring.read.store(read + count);
  incoming.got += count;
  if (incoming.got == incoming.frame.bytes) {
    incoming.arriving = false;
    const std::shared_ptr<Message> target = std::move(incoming.target);
    incoming.target = nullptr;
    if (target != nullptr) end(target, nullptr);
    if (incoming.early_target != nullptr) incoming.early_target->complete = true;
    return true;
  }
  return moved || count > 0;
}

}  // namespace rondo::shared_memory
