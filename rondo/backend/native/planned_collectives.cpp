#include "rondo/backend/native/planned_collectives.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
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
struct AgreedSettings {
  std::string by_hand;
  std::string tuning;
  bool in_rank_order = false;
};

std::string format(const AgreedSettings& agreed) {
  return nlohmann::json{
      {"by_hand", agreed.by_hand}, {"tuning", agreed.tuning}, {"in_rank_order", agreed.in_rank_order}}
      .dump();
}

AgreedSettings parse(const std::string& text) {
  const std::string source = "what rank 0 told of its algorithms";
  const auto json = parse_json_strict(text, source);
  const auto entry = [&](const char* key) -> const nlohmann::ordered_json& {
    return json_member(json, key, source);
  };
  return {json_text(entry("by_hand"), source), json_text(entry("tuning"), source),
          json_boolean(entry("in_rank_order"), source)};
}

AgreedSettings what_is_known_here(bool in_rank_order) {
  const char* by_hand = std::getenv(kVariable);
  const collective::Tuning tuning =
      in_rank_order ? collective::Tuning() : collective::read_tuning_of_this_machine();
  return {by_hand == nullptr ? "" : by_hand, collective::format_tuning(tuning), in_rank_order};
}

bool is_planned(OperationKind kind) {
  const std::vector<OperationKind>& planned = collective::planned_operations();
  return std::find(planned.begin(), planned.end(), kind) != planned.end();
}

// Whether input or output has a piece a rank, of which a plan sees one buffer.
bool has_pieces(OperationKind kind) {
  return kind == OperationKind::reduce_scatter || kind == OperationKind::all_gather;
}

}  // namespace

std::unique_ptr<PlannedCollectives> PlannedCollectives::make(Store& store,
                                                             const shared_memory::GroupOptions& options,
                                                             bool in_rank_order) {
  const std::string key = str("algorithms/", options.group_name);
  if (options.rank == 0) store.set(key, format(what_is_known_here(in_rank_order)));
  const AgreedSettings agreed = parse(store.get(key, {Deadline::after(options.timeout), nullptr}));
  Chooser chooser(collective::parse_tuning(agreed.tuning, "rank 0's table"),
                  collective::parse_hand_set(agreed.by_hand, kVariable));
  if (chooser.only_engine() || options.size == 1) return nullptr;
  return std::unique_ptr<PlannedCollectives>(
      new PlannedCollectives(store, options, std::move(chooser), agreed.in_rank_order));
}

PlannedCollectives::PlannedCollectives(Store& store, const shared_memory::GroupOptions& options,
                                       Chooser chooser, bool in_rank_order)
    : chooser_(std::move(chooser)),
      rank_(options.rank),
      size_(options.size),
      in_rank_order_(in_rank_order),
      channel_(std::make_unique<SharedMemoryChannel>(
          store, SharedMemoryChannel::Options{str("plans-", options.group_name), options.rank, options.size,
                                              options.timeout})) {}

std::uint64_t PlannedCollectives::buffer_bytes(const CollectiveRequest& request) const {
  return request.bytes() * (has_pieces(request.kind) ? static_cast<std::uint64_t>(size_) : 1);
}

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
    plan.bytes = Bytes{buffer_bytes(request)};
    plan.element_bytes = element_bytes(request.type);
    plan.root = request.root;
    plan.in_rank_order = in_rank_order_;
    executor = std::make_unique<Executor>(collective::make_plan(choice.algorithm, plan), request.type,
                                          request.reduction);
  }
  return *executor;
}

// The buffer that the plan works on, with this rank's input. Every piece is equally long, so a part of the
// plan is a piece.
std::span<std::byte> PlannedCollectives::fill_buffer(const CollectiveRequest& request) {
  const std::uint64_t piece = request.bytes();
  if (request.kind == OperationKind::reduce && rank_ != request.root) {
    // Only the root's buffer changes.
    scratch_.assign(request.input.base, request.input.base + piece);
    return scratch_;
  }
  if (!has_pieces(request.kind)) return {request.output.base, piece};
  const auto ranks = static_cast<std::size_t>(size_);
  if (request.kind == OperationKind::all_gather) {
    const bool in_place = request.output.contiguous() && request.output.stride == piece;
    if (!in_place) scratch_.resize(piece * ranks);
    std::byte* const buffer = in_place ? request.output.base : scratch_.data();
    std::byte* const own = buffer + piece * static_cast<std::size_t>(rank_);
    if (own != request.input.at(0)) std::memcpy(own, request.input.at(0), piece);
    return {buffer, piece * ranks};
  }
  // The caller's input stays as it is.
  scratch_.resize(piece * ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank)
    std::memcpy(scratch_.data() + piece * rank, request.input.at(rank), piece);
  return scratch_;
}

void PlannedCollectives::take_result(const CollectiveRequest& request,
                                     std::span<const std::byte> buffer) const {
  const std::uint64_t piece = request.bytes();
  if (request.kind == OperationKind::reduce_scatter)
    std::memcpy(request.output.base, buffer.data() + piece * static_cast<std::size_t>(rank_), piece);
  if (request.kind != OperationKind::all_gather || buffer.data() != scratch_.data()) return;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(size_); ++rank)
    std::memcpy(request.output.at(rank), buffer.data() + piece * rank, piece);
}

bool PlannedCollectives::run(const CollectiveRequest& request, shared_memory::Engine& engine,
                             const Wait& wait) {
  if (!is_planned(request.kind) || request.weighted || request.elements == 0) return false;
  const collective::Choice choice = chooser_.choose(request.kind, size_, buffer_bytes(request));
  if (choice.algorithm == collective::kEngine) return false;
  if (!collective::find_algorithm(choice.algorithm).has(request.kind)) return false;
  const std::lock_guard lock(mutex_);
  engine.progress();  // throws when the group is broken or was shut down
  // Peers may be waiting for this rank in an operation of the engine, and a plan does not move that on.
  if (const std::uint64_t started = engine.sequence(); started > 0) engine.wait(started - 1, wait);
  const std::span<std::byte> buffer = fill_buffer(request);
  executor_for(request, choice).run(*channel_, buffer, wait);
  take_result(request, buffer);
  return true;
}

}  // namespace rondo
