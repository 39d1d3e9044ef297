#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/parallel/gradients/gradient_hooks.h"
#include "rondo/parallel/gradients/gradient_weight.h"
#include "rondo/parallel/gradients/step_announcement.h"

namespace rondo {

// The way of a model's gradients from autograd's hooks to what sends them off. They leave in pieces, each
// when its last gradient is there, and strictly in one order: the same on all ranks, whatever order a
// backward pass takes. What a piece is (a bucket, a unit of the model), how it travels and when a pass begins
// and ends is the policy's business. Calls come one at a time; with parameters on several devices `arrived`
// is called from several threads, and the policy sees to that.
class GradientPath {
 public:
  struct Policy {
    // A backward pass has completed the gradient of a parameter.
    std::function<void(std::size_t parameter)> arrived;
    // The turn of a piece has come, and its gradients are there.
    std::function<void(std::size_t piece)> send;
    // The piece whose turn is the `place`-th of a pass. Null: they go by their numbers.
    std::function<std::size_t(std::size_t place)> order = {};
  };
  // `arrived` is told of `parameters` by their numbers. The announcement outlives the object and tells the
  // averaging weights.
  GradientPath(const std::vector<ModelTensor>& parameters, StepAnnouncement& announcement, Policy policy);

  // A pass begins. `gradients`: by piece, how many make it complete; 0 where only complete() does.
  void begin(const std::vector<std::size_t>& gradients);
  // One more gradient of the piece is there, perhaps the last: then true, and it has its turn.
  bool add(std::size_t piece);
  // No more gradients of the piece come in this pass: it has its turn.
  void complete(std::size_t piece);
  // The same of all pieces.
  void complete_all();
  // When the piece was complete, as monotonic_ns().
  std::int64_t ready_ns(std::size_t piece) const { return pieces_[piece].ready_ns; }
  // How much this rank's gradients count in this pass. The first call waits for what the ranks announce.
  const GradientWeight& weight(bool divide_by_active);

 private:
  struct Piece {
    std::size_t awaited = 0;  // gradients that are not there
    bool complete = false;
    std::int64_t ready_ns = 0;
  };

  void note_complete(Piece& piece);
  void send_complete();

  StepAnnouncement& announcement_;
  const Policy policy_;
  std::vector<Piece> pieces_;
  std::size_t next_ = 0;                  // turn
  std::optional<GradientWeight> weight_;  // of this pass, once known
  GradientHooks hooks_;                   // last: they call the policy
};

// By flag, how many ranks have set theirs. Collective.
std::vector<int> count_ranks(const std::vector<bool>& flags, const Group& group);

}  // namespace rondo
