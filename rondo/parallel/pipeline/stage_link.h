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

// What passes between two stages in one direction.
enum class StageMessage { activation = 0, gradient = 1 };

// Sends tensors between the stages of a pipeline. How many there are, their shapes, dtypes and which of them
// take gradients is told once for each shape of the model's input, and then the same again. One thread uses
// an object.
//
// Over an engine that matches messages by order (matches_by_order), all ranks call send() and expect() in the
// order of pipeline::in_message_order().
class StageLink {
 public:
  // Among the ranks of `group`, over which `stages` stages are spread. Collective.
  StageLink(Group group, int stages, c10::Device device);

  // To a stage on group rank `to`. Does not wait. `about` stands for the shapes of the model's input. Throws
  // UsageError naming both shapes where a tensor is not as it was for the same `about`.
  void send(StageMessage message, int stage, int micro_batch, int to, const Tensors& tensors,
            const std::string& about);
  // From now on the message may come; from group rank `from`. Where messages are matched by order, the first
  // message of an `about` is waited for until the sender has told its form.
  void expect(StageMessage message, int stage, int micro_batch, int from, const std::string& about);
  // The tensors of an expected message; waits for them. Activations that take gradients are leaves that do.
  Tensors receive(StageMessage message, int stage, int micro_batch);
  // Waits until all that was sent is there.
  void flush();
  // The tensors of group rank `root` on all of the group. Collective.
  Tensors broadcast(const Tensors& tensors, int root);
  double waited_s() const { return waited_s_; }  // in receive(), since the object was made

 private:
  struct Form {
    at::ScalarType dtype = at::kFloat;
    bool takes_gradient = false;
    std::vector<std::int64_t> sizes;
    bool operator==(const Form&) const = default;
  };
  using Forms = std::vector<Form>;
  using Key = std::tuple<StageMessage, int, int>;  // what, the receiving stage, micro-batch
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
  bool in_order_;  // messages are matched by order, not by tag
  std::map<std::tuple<StageMessage, int, std::string>, Forms> agreed_;  // by receiving stage
  std::map<Key, Expected> expected_;
  std::vector<Sent> sent_;
  double waited_s_ = 0;
};

}  // namespace rondo
