#include "rondo/parallel/gradients/gradient_path.h"

#include <torch/types.h>

#include "rondo/base/time.h"

namespace rondo {

GradientPath::GradientPath(const std::vector<ModelTensor>& parameters, StepAnnouncement& announcement,
                           Policy policy)
    : announcement_(announcement), policy_(std::move(policy)), hooks_(parameters, policy_.arrived) {}

void GradientPath::begin(const std::vector<std::size_t>& gradients) {
  pieces_.clear();
  for (const std::size_t awaited : gradients) pieces_.push_back({.awaited = awaited});
  next_ = 0;
  weight_.reset();
}

bool GradientPath::add(std::size_t piece) {
  Piece& own = pieces_[piece];
  if (own.awaited == 0 || --own.awaited > 0) return false;
  complete(piece);
  return true;
}

void GradientPath::complete(std::size_t piece) {
  note_complete(pieces_[piece]);
  send_complete();
}

void GradientPath::complete_all() {
  for (Piece& piece : pieces_) note_complete(piece);
  send_complete();
}

void GradientPath::note_complete(Piece& piece) {
  if (std::exchange(piece.complete, true)) return;
  piece.ready_ns = monotonic_ns();
}

void GradientPath::send_complete() {
  for (; next_ < pieces_.size(); ++next_) {
    const std::size_t piece = policy_.order ? policy_.order(next_) : next_;
    if (!pieces_[piece].complete) return;
    policy_.send(piece);
  }
}

const GradientWeight& GradientPath::weight(bool divide_by_active) {
  if (!weight_) {
    announcement_.ensure_started();
    weight_ = announcement_.gradient_weight(divide_by_active);
  }
  return *weight_;
}

std::vector<int> count_ranks(const std::vector<bool>& flags, const Group& group) {
  const std::vector<int> own(flags.begin(), flags.end());
  std::vector<at::Tensor> message = {torch::tensor(own, at::kInt).to(group.traits().control_device())};
  group.backend()->allreduce(message)->wait();
  const at::Tensor counts = message.front().cpu();
  const int* const first = counts.const_data_ptr<int>();
  return {first, first + counts.numel()};
}

}  // namespace rondo
