#include "rondo/backend/peer_exchange.h"

#include <optional>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

// Messages that have elements; `device` becomes theirs.
std::vector<PeerMessage> with_elements(const std::vector<PeerMessage>& messages,
                                       std::optional<c10::Device>& device) {
  std::vector<PeerMessage> result;
  for (const PeerMessage& message : messages) {
    if (message.tensor.numel() == 0) continue;
    if (device && *device != message.tensor.device()) {
      throw UsageError(str("the tensors of one exchange are on ", device->str(), " and ",
                           message.tensor.device().str(), "; move them to one device"));
    }
    device = message.tensor.device();
    result.push_back(message);
  }
  return result;
}

// Calls between startCoalescing and endCoalescing of an engine.
class CoalescedCalls {
 public:
  explicit CoalescedCalls(c10d::Backend& backend) : backend_(&backend) { backend.startCoalescing(); }
  CoalescedCalls(const CoalescedCalls&) = delete;
  CoalescedCalls& operator=(const CoalescedCalls&) = delete;
  // After an error: an engine that is left within a group would take all later calls into it.
  ~CoalescedCalls() {
    if (backend_ == nullptr) return;
    try {
      backend_->endCoalescing();
    } catch (const std::exception&) {
      // The first error is on its way.
    }
  }

  c10::intrusive_ptr<c10d::Work> end() {
    c10d::Backend* const backend = backend_;
    backend_ = nullptr;
    return backend->endCoalescing();
  }

 private:
  c10d::Backend* backend_;  // null: ended
};

}  // namespace

bool matches_by_order(const Group& group, c10::Device device) {
  return !device.is_cpu() && !group.traits().honours_tags;
}

std::vector<c10::intrusive_ptr<c10d::Work>> start_exchange(const Group& group,
                                                           const std::vector<PeerMessage>& sends,
                                                           const std::vector<PeerMessage>& receives) {
  std::optional<c10::Device> device;
  const std::vector<PeerMessage> outgoing = with_elements(sends, device);
  const std::vector<PeerMessage> incoming = with_elements(receives, device);
  if (!device) return {};
  c10d::Backend& backend = *group.backend();
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  // Receives first: no engine then needs to buffer.
  const auto start = [&] {
    for (const PeerMessage& message : incoming) {
      std::vector<at::Tensor> tensors{message.tensor};
      works.push_back(backend.recv(tensors, message.peer, message.tag));
    }
    for (const PeerMessage& message : outgoing) {
      std::vector<at::Tensor> tensors{message.tensor};
      works.push_back(backend.send(tensors, message.peer, message.tag));
    }
  };
  if (!matches_by_order(group, *device)) {
    start();
    return works;
  }
  CoalescedCalls calls(backend);
  start();
  return {calls.end()};
}

}  // namespace rondo
