#include "rondo/collective/algorithms/registry.h"

#include <algorithm>
#include <optional>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/collective/schedule.h"

namespace rondo::collective {
namespace {

// The two phases of a schedule in rank order: all_to_all's sum, then the algorithm's distribution.
struct Phases {
  ScheduleRequest sum;
  std::optional<ScheduleRequest> way_back;
};

Phases phases_of(const Algorithm& algorithm, const ScheduleRequest& request) {
  Phases phases{request, std::nullopt};
  if (request.operation != OperationKind::all_reduce) return phases;
  // A tree for whole buffers starts from one rank, which therefore collects the parts.
  const bool gathers = algorithm.has(OperationKind::all_gather);
  phases.sum.operation = gathers ? OperationKind::reduce_scatter : OperationKind::reduce;
  phases.way_back = request;
  phases.way_back->operation = gathers ? OperationKind::all_gather : OperationKind::broadcast;
  phases.sum.root = phases.way_back->root = 0;
  return phases;
}

}  // namespace

const std::vector<Algorithm>& algorithms() {
  static const std::vector<Algorithm> all = {
      naive(),    all_to_all(),   reduce_broadcast(), ring(), halving_doubling(), double_binary_tree(),
      torus_2d(), hierarchical(), direct(),
  };
  return all;
}

std::vector<std::string> algorithm_names() {
  std::vector<std::string> names;
  for (const Algorithm& algorithm : algorithms()) names.push_back(algorithm.name);
  return names;
}

const Algorithm& find_algorithm(const std::string& name) {
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.name == name) return algorithm;
  }
  throw UsageError(str("unknown algorithm '", name, "'; there are: ", join(algorithm_names(), ", ")));
}

const std::vector<OperationKind>& scheduled_operations() {
  static const std::vector<OperationKind> all = {OperationKind::all_reduce, OperationKind::reduce_scatter,
                                                 OperationKind::all_gather, OperationKind::broadcast,
                                                 OperationKind::reduce};
  return all;
}

namespace {

std::vector<std::string> names_of(const std::vector<OperationKind>& operations) {
  std::vector<std::string> names;
  for (const OperationKind operation : operations) names.emplace_back(rondo::name(operation));
  return names;
}

void check_request(const Algorithm& algorithm, const ScheduleRequest& request) {
  if (!algorithm.has(request.operation)) {
    throw UsageError(str("algorithm ", algorithm.name, " has no ", rondo::name(request.operation),
                         "; it has: ", join(names_of(algorithm.operations), ", ")));
  }
  if (request.world < 1)
    throw UsageError(str("a world of ", request.world, " ranks is not possible: expected at least 1"));
  for (const auto& [what, rank] : {std::pair{"rank", request.rank}, std::pair{"root", request.root}}) {
    if (rank < 0 || rank >= request.world) {
      throw UsageError(str(what, " ", rank, " is not a rank of a world of ", request.world));
    }
  }
  if (request.element_bytes == 0 || request.bytes.count % request.element_bytes != 0) {
    throw UsageError(
        str(request.bytes.count, " bytes are not whole elements of ", request.element_bytes, " bytes"));
  }
  if (!request.hosts.empty() && request.hosts.size() != static_cast<std::size_t>(request.world)) {
    throw UsageError(str("hosts are given for ", request.hosts.size(), " ranks of ", request.world));
  }
  if (request.rows < 0 || (request.rows > 0 && request.world % request.rows != 0)) {
    throw UsageError(str(request.world, " ranks do not form a grid of ", request.rows, " rows"));
  }
}

// Returns whether the request needs an order of additions that the algorithm's own schedule does not have.
bool replaced(const Algorithm& algorithm, const ScheduleRequest& request) {
  return request.in_rank_order && !algorithm.adds_in_rank_order && reduces(request.operation);
}

}  // namespace

bool Algorithm::has(OperationKind operation) const {
  return std::find(operations.begin(), operations.end(), operation) != operations.end();
}

OperationKind find_operation(const std::string& name) {
  for (const OperationKind operation : scheduled_operations()) {
    if (rondo::name(operation) == name) return operation;
  }
  throw UsageError(str("no schedules for operation '", name,
                       "'; there are: ", join(names_of(scheduled_operations()), ", ")));
}

Schedule make_schedule(const std::string& name, const ScheduleRequest& request) {
  const Algorithm& algorithm = find_algorithm(name);
  check_request(algorithm, request);
  Schedule schedule =
      replaced(algorithm, request) ? rank_order_schedule(algorithm, request) : algorithm.schedule(request);
  schedule.in_rank_order = algorithm.adds_in_rank_order || request.in_rank_order;
  return schedule;
}

Cost closed_form_cost(const std::string& name, const ScheduleRequest& request) {
  const Algorithm& algorithm = find_algorithm(name);
  check_request(algorithm, request);
  return replaced(algorithm, request) ? rank_order_cost(algorithm, request) : algorithm.cost(request);
}

std::vector<Schedule> make_schedules(const std::string& name, ScheduleRequest request) {
  std::vector<Schedule> schedules;
  for (request.rank = 0; request.rank < request.world; ++request.rank)
    schedules.push_back(make_schedule(name, request));
  return schedules;
}

Schedule rank_order_schedule(const Algorithm& algorithm, const ScheduleRequest& request) {
  const Phases phases = phases_of(algorithm, request);
  ScheduleBuilder builder(request, algorithm.name + " in rank order");
  const Schedule sum = all_to_all().schedule(phases.sum);
  builder.append(0, sum);
  int rounds = sum.rounds;
  if (phases.way_back) {
    const Schedule way_back = algorithm.schedule(*phases.way_back);
    builder.append(rounds, way_back);
    rounds += way_back.rounds;
  }
  return builder.finish(rounds);
}

Cost rank_order_cost(const Algorithm& algorithm, const ScheduleRequest& request) {
  const Phases phases = phases_of(algorithm, request);
  Cost cost = all_to_all().cost(phases.sum);
  if (!phases.way_back) return cost;
  const Cost way_back = algorithm.cost(*phases.way_back);
  cost.rounds += way_back.rounds;
  cost.bytes_sent += way_back.bytes_sent;
  cost.bytes_received += way_back.bytes_received;
  cost.scratch_bytes += way_back.scratch_bytes;
  return cost;
}

}  // namespace rondo::collective
