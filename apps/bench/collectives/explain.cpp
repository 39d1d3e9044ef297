#include "apps/bench/collectives/collectives.h"

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/collective/algorithms/registry.h"
#include "rondo/collective/schedule.h"

namespace rondo::bench {
namespace {

using collective::Cost;
using collective::Range;
using collective::Schedule;
using collective::Step;

collective::ScheduleRequest request_of(const ScheduleChoice& choice) {
  collective::ScheduleRequest request;
  request.operation = collective::find_operation(choice.operation);
  request.world = choice.ranks;
  request.root = choice.root;
  request.rows = choice.rows;
  request.element_bytes = choice.element_bytes;
  request.bytes = {choice.bytes.count / choice.element_bytes * choice.element_bytes};
  request.hosts = spread_over_hosts(choice.ranks, choice.hosts);
  request.in_rank_order = choice.in_rank_order && reduces(request.operation);
  return request;
}

Json to_json(const Range& range) {
  return {{"buffer", collective::name(range.buffer)}, {"offset", range.offset}, {"bytes", range.bytes}};
}

Json to_json(const Cost& cost) {
  return {{"rounds", cost.rounds},
          {"bytes_sent", cost.bytes_sent},
          {"bytes_received", cost.bytes_received},
          {"scratch_bytes", cost.scratch_bytes}};
}

Json to_json(const Step& step, int rank) {
  Json json = {{"round", step.round}, {"rank", rank}, {"kind", collective::name(step.kind)}};
  if (step.peer >= 0) json["peer"] = step.peer;
  json.update(to_json(step.range));
  if (!step.sources.empty()) {
    json["sources"] = Json::array();
    for (const Range& source : step.sources) json["sources"].push_back(to_json(source));
  }
  return json;
}

}  // namespace

std::vector<int> spread_over_hosts(int ranks, int hosts) {
  if (hosts < 1 || hosts > ranks) {
    throw UsageError(str("--hosts: ", ranks, " ranks cannot be spread over ", hosts, " hosts"));
  }
  std::vector<int> host_of;
  for (int rank = 0; rank < ranks; ++rank) host_of.push_back(rank * hosts / ranks);
  return host_of;
}

std::string explain_as_text(const ScheduleChoice& choice) {
  const auto& algorithm = collective::find_algorithm(choice.algorithm);
  return str(algorithm.name, ": ", algorithm.summary, "\n\n",
             collective::schedule_table(collective::make_schedules(choice.algorithm, request_of(choice))));
}

Json explain_as_json(const ScheduleChoice& choice) {
  collective::ScheduleRequest request = request_of(choice);
  const auto& algorithm = collective::find_algorithm(choice.algorithm);
  const std::vector<Schedule> schedules = collective::make_schedules(choice.algorithm, request);
  Json json = {
      {"operation", choice.operation}, {"algorithm", algorithm.name},  {"summary", algorithm.summary},
      {"ranks", choice.ranks},         {"hosts", choice.hosts},        {"root", choice.root},
      {"dtype", choice.dtype},         {"bytes", request.bytes.count}, {"rounds", schedules.front().rounds},
      {"costs", Json::array()},        {"steps", Json::array()}};
  for (const Schedule& schedule : schedules) {
    request.rank = schedule.rank;
    Json cost = {{"rank", schedule.rank}};
    cost.update(to_json(collective::count_cost(schedule)));
    cost["closed_form"] = to_json(collective::closed_form_cost(choice.algorithm, request));
    json["costs"].push_back(cost);
  }
  for (int round = 0; round < schedules.front().rounds; ++round) {
    for (const Schedule& schedule : schedules) {
      for (const Step& step : schedule.steps) {
        if (step.round == round) json["steps"].push_back(to_json(step, schedule.rank));
      }
    }
  }
  return json;
}

}  // namespace rondo::bench
