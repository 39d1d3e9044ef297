#include "rondo/collective/plan.h"

#include <algorithm>

namespace rondo::collective {

Range piece_of(const Range& whole, std::size_t element_bytes, int pieces, int index) {
  const std::uint64_t elements = whole.bytes / element_bytes;
  const auto count = static_cast<std::uint64_t>(pieces);
  const auto at = static_cast<std::uint64_t>(index);
  const std::uint64_t begin = at * (elements / count) + std::min(at, elements % count);
  const std::uint64_t length = elements / count + (at < elements % count ? 1 : 0);
  return {whole.buffer, whole.offset + begin * element_bytes, length * element_bytes};
}

Range part_of(const PlanRequest& request, int rank) {
  return piece_of({Buffer::data, 0, request.bytes.count}, request.element_bytes, request.world, rank);
}

Cost count_cost(const Plan& plan) {
  Cost cost;
  cost.rounds = plan.rounds;
  cost.scratch_bytes = plan.scratch.count;
  for (const Step& step : plan.steps) {
    if (step.kind == StepKind::send) cost.bytes_sent += step.range.bytes;
    if (step.kind == StepKind::recv || step.kind == StepKind::recv_reduce)
      cost.bytes_received += step.range.bytes;
  }
  return cost;
}

const char* name(StepKind kind) {
  switch (kind) {
    case StepKind::send:
      return "send";
    case StepKind::recv:
      return "recv";
    case StepKind::recv_reduce:
      return "recv_reduce";
    case StepKind::reduce:
      return "reduce";
    case StepKind::copy:
      return "copy";
  }
  return "unknown";
}

const char* name(Buffer buffer) { return buffer == Buffer::data ? "data" : "scratch"; }

}  // namespace rondo::collective
