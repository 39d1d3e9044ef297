#include "rondo/collective/plan_text.h"

#include <iomanip>

#include "rondo/base/text.h"

namespace rondo::collective {
namespace {

std::string text(const Range& range) {
  return str(name(range.buffer), " [", range.offset, ", ", range.offset + range.bytes, ")");
}

std::string texts(const std::vector<Range>& ranges) {
  std::vector<std::string> all;
  for (const Range& range : ranges) all.push_back(text(range));
  return join(all, " + ");
}

// What a step does, without its range.
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
