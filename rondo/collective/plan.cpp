#include "rondo/collective/plan.h"

#include <algorithm>
#include <iomanip>

#include "rondo/base/text.h"

namespace rondo::collective {
namespace {

// A cache line: rows of scratch that are summed together have equal alignment.
constexpr std::uint64_t kScratchAlignment = 64;

std::string text(const Range& range) {
  return str(name(range.buffer), " [", range.offset, ", ", range.offset + range.bytes, ")");
}

std::string texts(const std::vector<Range>& ranges) {
  std::vector<std::string> all;
  for (const Range& range : ranges) all.push_back(text(range));
  return join(all, " + ");
}

// Describes a step without its range.
std::string action(const Step& step) {
  switch (step.kind) {
    case StepKind::send:
      return str("send to rank ", step.peer);
    case StepKind::recv:
      return str("receive from rank ", step.peer);
    case StepKind::recv_reduce:
      return str("receive and add from rank ", step.peer);
    case StepKind::reduce:
      return "add";
    case StepKind::copy:
      return "copy";
  }
  return "unknown";
}

}  // namespace

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

std::string describe(const Step& step) {
  return str(action(step), ": ", text(step.range), step.sources.empty() ? "" : " = ", texts(step.sources));
}

std::string plan_table(const std::vector<Plan>& plans) {
  const Plan& first = plans.front();
  TextStream out;
  out << first.algorithm << " " << rondo::name(first.operation) << ", " << first.world << " ranks, "
      << to_string(first.bytes) << ": " << first.rounds << (first.rounds == 1 ? " round\n" : " rounds\n")
      << "  round   rank   step                             bytes   where\n";
  for (int round = 0; round < first.rounds; ++round) {
    for (const Plan& plan : plans) {
      for (const Step& step : plan.steps) {
        if (step.round != round) continue;
        out << std::setw(7) << round << std::setw(7) << plan.rank << "   " << std::left << std::setw(28)
            << action(step) << std::right << std::setw(10) << step.range.bytes << "   " << text(step.range)
            << (step.sources.empty() ? "" : " = ") << texts(step.sources) << "\n";
      }
    }
  }
  out << "\n   rank    bytes sent   bytes received   messages      scratch\n";
  for (const Plan& plan : plans) {
    const Cost cost = count_cost(plan);
    int messages = 0;
    for (const Step& step : plan.steps) messages += step.kind == StepKind::send ? 1 : 0;
    out << std::setw(7) << plan.rank << std::setw(14) << cost.bytes_sent << std::setw(17)
        << cost.bytes_received << std::setw(11) << messages << std::setw(13) << cost.scratch_bytes << "\n";
  }
  return out.str();
}

}  // namespace rondo::collective
