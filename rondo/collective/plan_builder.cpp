#include "rondo/collective/plan_builder.h"

#include <algorithm>

namespace rondo::collective {
namespace {

// A cache line: rows of scratch that are summed together start alike.
constexpr std::uint64_t kScratchAlignment = 64;

}  // namespace

PlanBuilder::PlanBuilder(const PlanRequest& request, std::string algorithm) : request_(request) {
  plan_.operation = request.operation;
  plan_.algorithm = std::move(algorithm);
  plan_.rank = request.rank;
  plan_.world = request.world;
  plan_.root = request.root;
  plan_.bytes = request.bytes;
  plan_.element_bytes = request.element_bytes;
}

Range PlanBuilder::pieces(int pieces, int begin, int end) const {
  if (begin == end) return {};
  const Range first = piece(pieces, begin);
  const Range last = piece(pieces, end - 1);
  return {Buffer::data, first.offset, last.offset + last.bytes - first.offset};
}

Range PlanBuilder::scratch(std::uint64_t bytes) {
  const std::uint64_t begin =
      (plan_.scratch.count + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
  if (bytes > 0) plan_.scratch = {begin + bytes};
  return {Buffer::scratch, begin, bytes};
}

void PlanBuilder::add(Step step) {
  if (step.range.bytes > 0) plan_.steps.push_back(std::move(step));
}

void PlanBuilder::send(int round, int peer, const Range& range) {
  add({StepKind::send, round, peer, range, {}});
}

void PlanBuilder::recv(int round, int peer, const Range& range) {
  add({StepKind::recv, round, peer, range, {}});
}

void PlanBuilder::recv_reduce(int round, int peer, const Range& range) {
  add({StepKind::recv_reduce, round, peer, range, {}});
}

void PlanBuilder::reduce(int round, const Range& range, std::vector<Range> sources) {
  add({StepKind::reduce, round, -1, range, std::move(sources)});
}

void PlanBuilder::append(int round, const Plan& plan) {
  const std::uint64_t scratch_begin = scratch(plan.scratch.count).offset;
  const auto shift = [&](Range& range) {
    if (range.buffer == Buffer::scratch) range.offset += scratch_begin;
  };
  for (Step step : plan.steps) {
    step.round += round;
    shift(step.range);
    for (Range& source : step.sources) shift(source);
    add(std::move(step));
  }
}

Plan PlanBuilder::finish(int rounds) {
  plan_.rounds = rounds;
  std::stable_sort(plan_.steps.begin(), plan_.steps.end(), [](const Step& a, const Step& b) {
    return a.round != b.round ? a.round < b.round : is_local(a) < is_local(b);
  });
  return std::move(plan_);
}

}  // namespace rondo::collective
