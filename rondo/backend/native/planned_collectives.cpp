#include "rondo/backend/native/planned_collectives.h"

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "rondo/base/error.h"
#include "rondo/base/log.h"
#include "rondo/base/text.h"
#include "rondo/channel/shared_memory_channel.h"
#include "rondo/collective/algorithms/registry.h"

namespace rondo {
namespace {

using collective::Chooser;
using collective::Executor;

constexpr const char* kVariable = "RONDO_ALGORITHM";

// What rank 0 tells the others.
struct Told {
  std::string by_hand;
  std::string tuning;
};

std::string format(const Told& told) {
  return nlohmann::json{{"by_hand", told.by_hand}, {"tuning", told.tuning}}.dump();
}

Told parse(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  return {json.at("by_hand"), json.at("tuning")};
}

Told what_is_known_here() {
  const char* by_hand = std::getenv(kVariable);
  return {by_hand == nullptr ? "" : by_hand,
          collective::format_tuning(collective::read_tuning_of_this_machine())};
}

bool is_planned(OperationKind kind) {
  return kind == OperationKind::all_reduce || kind == OperationKind::broadcast ||
         kind == OperationKind::reduce;
}

std::vector<std::string> known_algorithms() {
  std::vector<std::string> names = collective::algorithm_names();
  names.insert(names.begin(), collective::kEngine);
  return names;
}

// An algorithm set for one operation must have that; one set for all is used where it can be.
void check_hand_set(const collective::HandSet& by_hand) {
  for (const auto& [operation, algorithm] : by_hand) {
    if (operation.empty() || algorithm == collective::kEngine) continue;
    const OperationKind kind = collective::find_operation(operation);
    if (is_planned(kind) && collective::find_algorithm(algorithm).has(kind)) continue;
    throw UsageError(str(kVariable, ": ", operation, "=", algorithm, ": ",
                         is_planned(kind) ? "this algorithm has no such operation"
                                          : "plans are for all_reduce, broadcast and reduce"));
  }
}

}  // namespace

std::unique_ptr<PlannedCollectives> PlannedCollectives::make(Store& store,
                                                             const shared_memory::GroupOptions& options) {
  const std::string key = str("algorithms/", options.group_name);
  if (options.rank == 0) store.set(key, format(what_is_known_here()));
  const Told told = parse(store.get(key, {Deadline::after(options.timeout), nullptr}));
  const collective::HandSet by_hand = collective::parse_hand_set(told.by_hand, known_algorithms(), kVariable);
  check_hand_set(by_hand);
  Chooser chooser(collective::parse_tuning(told.tuning, "rank 0's table"), by_hand);
  if (chooser.only_engine() || options.size == 1) return nullptr;
  return std::unique_ptr<PlannedCollectives>(new PlannedCollectives(store, options, std::move(chooser)));
}

PlannedCollectives::PlannedCollectives(Store& store, const shared_memory::GroupOptions& options,
                                       Chooser chooser)
    : chooser_(std::move(chooser)),
      rank_(options.rank),
      size_(options.size),
      channel_(std::make_unique<SharedMemoryChannel>(
          store, SharedMemoryChannel::Options{str("plans-", options.group_name), options.rank, options.size,
                                              options.timeout})) {}

Executor& PlannedCollectives::executor_for(const CollectiveRequest& request,
                                           const collective::Choice& choice) {
  std::unique_ptr<Executor>& executor = executors_[{request.kind, request.type, request.reduction,
                                                    request.root, request.bytes(), choice.algorithm}];
  if (executor == nullptr) {
    if (rank_ == 0)
      log::info("algorithm ", choice.algorithm, " for ", describe(request), ": ", choice.reason);
    collective::PlanRequest plan;
    plan.operation = request.kind;
    plan.rank = rank_;
    plan.world = size_;
    plan.bytes = Bytes{request.bytes()};
    plan.element_bytes = element_bytes(request.type);
    plan.root = request.root;
    executor = std::make_unique<Executor>(collective::make_plan(choice.algorithm, plan), request.type,
                                          request.reduction);
  }
  return *executor;
}

bool PlannedCollectives::run(const CollectiveRequest& request, shared_memory::Engine& engine,
                             const Wait& wait) {
  if (!is_planned(request.kind) || request.weighted || request.elements == 0) return false;
  const collective::Choice choice = chooser_.choose(request.kind, size_, request.bytes());
  if (choice.algorithm == collective::kEngine) return false;
  if (!collective::find_algorithm(choice.algorithm).has(request.kind)) return false;
  const std::lock_guard lock(mutex_);
  engine.progress();  // throws when the group is broken or was shut down
  // Peers may be waiting for this rank in an operation of the engine, and a plan does not move that on.
  if (const std::uint64_t started = engine.sequence(); started > 0) engine.wait(started - 1, wait);
  executor_for(request, choice).run(*channel_, {request.output.base, request.bytes()}, wait);
  return true;
}

}  // namespace rondo
