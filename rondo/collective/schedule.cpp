#include "rondo/collective/schedule.h"

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

Range part_of(const ScheduleRequest& request, int rank) {
  return piece_of({Buffer::data, 0, request.bytes.count}, request.element_bytes, request.world, rank);
}

Cost count_cost(const Schedule& schedule) {
  Cost cost;
  cost.rounds = schedule.rounds;
  cost.scratch_bytes = schedule.scratch.count;
  for (const Step& step : schedule.steps) {
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

ScheduleBuilder::ScheduleBuilder(const ScheduleRequest& request, std::string algorithm) : request_(request) {
  schedule_.operation = request.operation;
  schedule_.algorithm = std::move(algorithm);
  schedule_.rank = request.rank;
  schedule_.world = request.world;
  schedule_.root = request.root;
  schedule_.bytes = request.bytes;
  schedule_.element_bytes = request.element_bytes;
}

Range ScheduleBuilder::pieces(int pieces, int begin, int end) const {
  if (begin == end) return {};
  const Range first = piece(pieces, begin);
  const Range last = piece(pieces, end - 1);
  return {Buffer::data, first.offset, last.offset + last.bytes - first.offset};
}

Range ScheduleBuilder::scratch(std::uint64_t bytes) {
  const std::uint64_t begin =
      (schedule_.scratch.count + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
  if (bytes > 0) schedule_.scratch = {begin + bytes};
  return {Buffer::scratch, begin, bytes};
}

void ScheduleBuilder::add(Step step) {
  if (step.range.bytes > 0) schedule_.steps.push_back(std::move(step));
}

void ScheduleBuilder::send(int round, int peer, const Range& range) {
  add({StepKind::send, round, peer, range, {}});
}

void ScheduleBuilder::recv(int round, int peer, const Range& range) {
  add({StepKind::recv, round, peer, range, {}});
}

void ScheduleBuilder::recv_reduce(int round, int peer, const Range& range) {
  add({StepKind::recv_reduce, round, peer, range, {}});
}

void ScheduleBuilder::reduce(int round, const Range& range, std::vector<Range> sources) {
  add({StepKind::reduce, round, -1, range, std::move(sources)});
}

void ScheduleBuilder::append(int round, const Schedule& schedule) {
  const std::uint64_t scratch_begin = scratch(schedule.scratch.count).offset;
  const auto shift = [&](Range& range) {
    if (range.buffer == Buffer::scratch) range.offset += scratch_begin;
  };
  for (Step step : schedule.steps) {
    step.round += round;
    shift(step.range);
    for (Range& source : step.sources) shift(source);
    add(std::move(step));
  }
}

Schedule ScheduleBuilder::finish(int rounds) {
  schedule_.rounds = rounds;
  std::stable_sort(schedule_.steps.begin(), schedule_.steps.end(), [](const Step& a, const Step& b) {
    return a.round != b.round ? a.round < b.round : is_local(a) < is_local(b);
  });
  return std::move(schedule_);
}

std::string describe(const Step& step) {
  return str(action(step), ": ", text(step.range), step.sources.empty() ? "" : " = ", texts(step.sources));
}

std::string schedule_table(const std::vector<Schedule>& schedules) {
  const Schedule& first = schedules.front();
  TextStream out;
  out << first.algorithm << " " << rondo::name(first.operation) << ", " << first.world << " ranks, "
      << to_string(first.bytes) << ": " << first.rounds << (first.rounds == 1 ? " round\n" : " rounds\n")
      << "  round   rank   step                             bytes   where\n";
  for (int round = 0; round < first.rounds; ++round) {
    for (const Schedule& schedule : schedules) {
      for (const Step& step : schedule.steps) {
        if (step.round != round) continue;
        out << std::setw(7) << round << std::setw(7) << schedule.rank << "   " << std::left << std::setw(28)
            << action(step) << std::right << std::setw(10) << step.range.bytes << "   " << text(step.range)
            << (step.sources.empty() ? "" : " = ") << texts(step.sources) << "\n";
      }
    }
  }
  out << "\n   rank    bytes sent   bytes received   messages      scratch\n";
  for (const Schedule& schedule : schedules) {
    const Cost cost = count_cost(schedule);
    int messages = 0;
    for (const Step& step : schedule.steps) messages += step.kind == StepKind::send ? 1 : 0;
    out << std::setw(7) << schedule.rank << std::setw(14) << cost.bytes_sent << std::setw(17)
        << cost.bytes_received << std::setw(11) << messages << std::setw(13) << cost.scratch_bytes << "\n";
  }
  return out.str();
}

}  // namespace rondo::collective
