#pragma once

#include <c10/core/Device.h>

#include <map>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <tuple>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/backend/point_to_point.h"
#include "rondo/nn/model.h"

namespace rondo {

// Kind of a message between two stages; each has one direction.
enum class StageMessage { activation = 0, gradient = 1 };

// Sends tensors between the stages of a pipeline. Their number, shapes, dtypes and requires_grad are sent
// once for each shape of the model's input, and must then stay the same. Not thread-safe.
//
// With an engine that matches messages by order (matches_by_order()), all ranks call send() and expect() in
// the order of pipeline::in_message_order().
class StageLink {
 public:
  // `stages` stages are spread over the ranks of `group`. Collective.
  StageLink(Group group, int stages, c10::Device device);

  // Sends tensors to the next or previous stage, on group rank `to`, without waiting. `about` identifies the
  // shapes of the model's input. Throws UsageError with both shapes if a tensor differs from the one for the
  // same `about`.
  void send(StageMessage message, int stage, int micro_batch, int to, const Tensors& tensors,
            const std::string& about);
  // Announces that a message from group rank `from` may arrive. If messages are matched by order, the first
  // message for an `about` blocks until the sender has sent its form.
  void expect(StageMessage message, int stage, int micro_batch, int from, const std::string& about);
  // Blocks until an expected message has arrived and returns its tensors. Activations are leaves that require
  // gradients as the sender's tensors did.
  Tensors receive(StageMessage message, int stage, int micro_batch);
  // Blocks until all messages sent have been delivered.
  void flush();
  // Returns the tensors of group rank `root` on all ranks of the group. Collective.
  Tensors broadcast(const Tensors& tensors, int root);
  // Returns the seconds spent waiting in receive() since construction.
  double waited_s() const { return waited_s_; }

 private:
  struct Form {
    at::ScalarType dtype = at::kFloat;
    bool takes_gradient = false;
    std::vector<std::int64_t> sizes;
    bool operator==(const Form&) const = default;
  };
  using Forms = std::vector<Form>;
  using Key = std::tuple<StageMessage, int, int>;  // kind, receiving stage, micro-batch
  struct Expected {
    int from = 0;
    std::string about;
    Tensors tensors = {};
    std::vector<c10::intrusive_ptr<c10d::Work>> works = {};
    bool posted = false;
  };
  struct Sent {
    std::vector<PeerMessage> messages;
    std::vector<c10::intrusive_ptr<c10d::Work>> works;
  };

  static Forms forms_of(const Tensors& tensors);
  static at::Tensor encode(const Forms& forms);
  static Forms decode(const at::Tensor& numbers);
  static std::string describe(const Forms& forms);
  int tag(const Key& key, std::size_t part) const;
  void post(const Key& key, Expected& expected);
  void start_send(const std::vector<PeerMessage>& messages);

  Group group_;
  int stages_;
  c10::Device device_;
  bool in_order_;  // whether messages are matched by order instead of by tag
  // By kind, receiving stage and `about`.
  std::map<std::tuple<StageMessage, int, std::string>, Forms> agreed_;
  std::map<Key, Expected> expected_;
  std::vector<Sent> sent_;
  double waited_s_ = 0;
};

}  // namespace rondo
