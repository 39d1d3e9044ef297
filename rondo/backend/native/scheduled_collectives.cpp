#include "rondo/backend/native/scheduled_collectives.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/log.h"
#include "rondo/base/text.h"
#include "rondo/channel/shared_memory_channel.h"
#include "rondo/channel/store.h"
#include "rondo/channel/waiting.h"
#include "rondo/collective/algorithms/registry.h"

namespace rondo {
namespace {

using collective::AlgorithmSelection;
using collective::Executor;
using shared_memory::Engine;
using shared_memory::HelperThread;
using shared_memory::OperationOwner;

constexpr const char* kVariable = "RONDO_ALGORITHM";

// The settings that rank 0 broadcasts.
struct AgreedSettings {
  std::string algorithms;
  bool in_rank_order = false;
};

std::string format(const AgreedSettings& agreed) {
  return nlohmann::json{{"algorithms", agreed.algorithms}, {"in_rank_order", agreed.in_rank_order}}.dump();
}

AgreedSettings parse(const std::string& text) {
  const std::string source = "the algorithms of rank 0";
  const auto json = parse_json_strict(text, source);
  const auto entry = [&](const char* key) -> const nlohmann::ordered_json& {
    return json_member(json, key, source);
  };
  return {json_text(entry("algorithms"), source), json_boolean(entry("in_rank_order"), source)};
}

AgreedSettings own_settings(bool in_rank_order) {
  const char* algorithms = std::getenv(kVariable);
  return {algorithms == nullptr ? "" : algorithms, in_rank_order};
}

bool is_scheduled(OperationKind kind) {
  const std::vector<OperationKind>& scheduled = collective::scheduled_operations();
  return std::find(scheduled.begin(), scheduled.end(), kind) != scheduled.end();
}

// Returns whether input or output has one piece per rank, which a schedule treats as one buffer.
bool has_pieces(OperationKind kind) {
  return kind == OperationKind::reduce_scatter || kind == OperationKind::all_gather;
}

// The owner of a collective whose caller waits and keeps the buffers.
class Outcome final : public OperationOwner {
 public:
  void finish(const std::exception_ptr& error) noexcept override { error_ = error; }
  void announce() noexcept override {}
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::exception_ptr error_;
};

CollectiveRequest announced(const CollectiveRequest& request) {
  return {.kind = request.kind,
          .type = request.type,
          .reduction = request.reduction,
          .root = request.root,
          .elements = request.elements,
          .by_schedule = true,
          .call = request.call};
}

Deadline earlier(const Deadline& a, const Deadline& b) { return a.at() < b.at() ? a : b; }

}  // namespace

std::shared_ptr<ScheduledCollectives> ScheduledCollectives::make(Store& store, std::shared_ptr<Engine> engine,
                                                                 bool in_rank_order) {
  const shared_memory::GroupOptions& options = engine->options();
  const std::string key = str("algorithms/", options.group_name);
  if (options.rank == 0) store.set(key, format(own_settings(in_rank_order)));
  const AgreedSettings agreed =
      parse(value_of_rank(store, key, 0, "the algorithms of collectives", options.timeout));
  AlgorithmSelection selection(agreed.algorithms, kVariable);
  if (selection.only_engine() || options.size == 1) return nullptr;
  return std::shared_ptr<ScheduledCollectives>(
      new ScheduledCollectives(store, std::move(engine), std::move(selection), agreed.in_rank_order));
}

ScheduledCollectives::ScheduledCollectives(Store& store, std::shared_ptr<Engine> engine,
                                           AlgorithmSelection selection, bool in_rank_order)
    : engine_(std::move(engine)),
      selection_(std::move(selection)),
      rank_(engine_->rank()),
      size_(engine_->size()),
      in_rank_order_(in_rank_order),
      channel_(std::make_unique<SharedMemoryChannel>(
          store, SharedMemoryChannel::Options{str("schedules-", engine_->options().group_name), rank_, size_,
                                              engine_->options().timeout,
                                              [this] {
                                                engine_->agreed(announcement_);
                                                engine_->throw_if_broken();
                                              }})),
      helpers_([this](HelperThread::Control& control) { help(control); }) {}

ScheduledCollectives::~ScheduledCollectives() {
  // In a forked child, threads that do not exist there may hold the locks.
  if (!process_.is_current()) return;
  end_all(
      std::make_exception_ptr(UsageError(str("group '", engine_->options().group_name, "' was destroyed"))),
      std::uncaught_exceptions() > 0 ? Duration::zero() : Duration(shared_memory::kLeavePatience));
}

std::optional<std::string> ScheduledCollectives::algorithm_for(const CollectiveRequest& request) const {
  // The engine runs averages of integers, and refuses undefined reductions.
  if (!is_scheduled(request.kind) || request.weighted || request.elements == 0 ||
      !supports(request.type, request.reduction)) {
    return {};
  }
  const std::string& algorithm = selection_.of(request.kind);
  if (algorithm == collective::kEngine || !collective::find_algorithm(algorithm).has(request.kind)) return {};
  return algorithm;
}

std::optional<std::uint64_t> ScheduledCollectives::start(const CollectiveRequest& request, Owner owner,
                                                         const Deadline& deadline, bool caller_waits) {
  std::optional<std::string> algorithm = algorithm_for(request);
  if (!algorithm) return {};
  // Throws if the group has failed or was shut down.
  const std::uint64_t announcement = engine_->start(announced(request), nullptr, deadline);
  QueuedCollective queued{request, std::move(owner), *std::move(algorithm), announcement, deadline};
  const std::lock_guard lock(mutex_);
  if (given_up_) std::rethrow_exception(given_up_);
  queue_.push_back(std::move(queued));
  if (!caller_waits) helpers_.call();
  return started_++;
}

bool ScheduledCollectives::run(const CollectiveRequest& request, const Deadline& deadline) {
  const auto outcome = std::make_shared<Outcome>();
  const std::optional<std::uint64_t> number = start(request, outcome, deadline, true);
  if (!number) return false;
  wait(*number, Deadline::never());
  outcome->rethrow();
  return true;
}

void ScheduledCollectives::wait(std::uint64_t number, const Deadline& deadline) {
  engine_->check_process();
  std::unique_lock lock(mutex_);
  while (ended_ <= number) {
    if (!running_) {
      const Owner ended = run_next(lock, deadline);
      // Announces at once, without the lock: a callback may wait for the next collective.
      lock.unlock();
      ended->announce();
      lock.lock();
      continue;
    }
    if (deadline.passed()) {
      give_up(std::make_exception_ptr(
          TimeoutError(str("scheduled collective number ", number, ", on rank ", rank_, " of group '",
                           engine_->options().group_name, "' did not finish before its timeout"),
                       {})));
    }
    sleep(lock, deadline.passed() ? Duration::max() : deadline.remaining());
  }
}

void ScheduledCollectives::help(HelperThread::Control& control) {
  std::unique_lock lock(mutex_);
  while (!control.stopped()) {
    const std::uint32_t word = control.word();
    if (running_ || queue_.empty()) {
      lock.unlock();
      control.sleep(word, Duration::max());
      if (control.stopped()) return;
      lock.lock();
      continue;
    }
    Owner ended = run_next(lock, Deadline::never());
    helpers_.go_off_duty();
    if (!queue_.empty()) helpers_.call();
    lock.unlock();
    control.leave();
    ended->announce();
    ended.reset();  // may release the last reference to a tensor
    // The callback may have destroyed the group.
    if (!helpers_.return_to_duty(lock, control)) return;
  }
}

ScheduledCollectives::Owner ScheduledCollectives::run_next(std::unique_lock<std::mutex>& lock,
                                                           const Deadline& limit) {
  const QueuedCollective queued = std::move(queue_.front());
  queue_.pop_front();
  running_ = true;
  std::exception_ptr error = given_up_;
  lock.unlock();
  if (!error) {
    try {
      run_schedule(queued, earlier(queued.deadline, limit));
    } catch (const std::exception&) {
      error = std::current_exception();
    }
  }
  lock.lock();
  if (error && given_up_) error = given_up_;  // replaces the CancelledError that give_up() caused
  lock.unlock();
  queued.owner->finish(error);
  lock.lock();
  running_ = false;
  ++ended_;
  endings_.fetch_add(1);
  futex_wake_all(endings_);
  // The thread that ran this one may not run the next.
  if (!queue_.empty() && helpers_.has_threads()) helpers_.call();
  if (error) {
    // Wakes peers that wait in the engine. Done before the announcement, because its callbacks may wait for
    // schedules.
    lock.unlock();
    engine_->abort(error);
    lock.lock();
  }
  return queued.owner;
}

void ScheduledCollectives::run_schedule(const QueuedCollective& queued, const Deadline& deadline) {
  const Wait wait{deadline, &cancel_};
  // The schedule starts after all earlier operations of the engine: the peers may need this rank in those
  // first.
  if (queued.announcement > 0) engine_->wait(queued.announcement - 1, wait);
  announcement_ = queued.announcement;
  const std::span<std::byte> buffer = fill_buffer(queued.request);
  executor_for(queued.request, queued.algorithm).run(*channel_, buffer, wait);
  take_result(queued.request, buffer);
  // A rank that only sends may complete before the others have started.
  engine_->wait_agreed(queued.announcement, wait);
}

void ScheduledCollectives::sleep(std::unique_lock<std::mutex>& lock, Duration limit) {
  const std::uint32_t seen = endings_.load();
  lock.unlock();
  futex_wait(endings_, seen, limit);
  lock.lock();
}

void ScheduledCollectives::give_up(const std::exception_ptr& error) {
  if (!given_up_) given_up_ = error;
  cancel_.cancel();
}

void ScheduledCollectives::end_all(const std::exception_ptr& error, Duration patience) {
  if (!process_.is_current()) return;
  const Deadline limit = Deadline::after(std::min(patience, Duration(engine_->options().timeout)));
  std::vector<Owner> ended;
  std::unique_lock lock(mutex_);
  while (running_ || !queue_.empty()) {
    if (limit.passed()) give_up(error);
    if (!running_) {
      ended.push_back(run_next(lock, limit));
    } else {
      sleep(lock, limit.passed() ? Duration::max() : limit.remaining());
    }
  }
  give_up(error);
  lock.unlock();
  for (const Owner& owner : ended) owner->announce();
}

void ScheduledCollectives::abort(const std::string& reason) {
  end_all(std::make_exception_ptr(CancelledError(reason)), Duration::zero());
}

void ScheduledCollectives::close(const std::string& reason) {
  end_all(std::make_exception_ptr(UsageError(reason)), shared_memory::kLeavePatience);
}

std::uint64_t ScheduledCollectives::buffer_bytes(const CollectiveRequest& request) const {
  return request.bytes() * (has_pieces(request.kind) ? static_cast<std::uint64_t>(size_) : 1);
}

Executor& ScheduledCollectives::executor_for(const CollectiveRequest& request, const std::string& algorithm) {
  std::unique_ptr<Executor>& executor =
      executors_[{request.kind, request.type, request.reduction, request.root, request.bytes(), algorithm}];
  if (executor == nullptr) {
    if (rank_ == 0) log::info("algorithm ", algorithm, " for ", describe(request));
    collective::ScheduleRequest schedule;
    schedule.operation = request.kind;
    schedule.rank = rank_;
    schedule.world = size_;
    schedule.bytes = Bytes{buffer_bytes(request)};
    schedule.element_bytes = element_bytes(request.type);
    schedule.root = request.root;
    schedule.in_rank_order = in_rank_order_;
    executor = std::make_unique<Executor>(collective::make_schedule(algorithm, schedule), request.type,
                                          request.reduction);
  }
  return *executor;
}

// Returns the buffer of the schedule, filled with this rank's input. All pieces have one length, so the
// schedule's parts equal the pieces.
std::span<std::byte> ScheduledCollectives::fill_buffer(const CollectiveRequest& request) {
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
  // The caller's input stays unchanged.
  scratch_.resize(piece * ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank)
    std::memcpy(scratch_.data() + piece * rank, request.input.at(rank), piece);
  return scratch_;
}

void ScheduledCollectives::take_result(const CollectiveRequest& request,
                                       std::span<const std::byte> buffer) const {
  const std::uint64_t piece = request.bytes();
  if (request.kind == OperationKind::reduce_scatter)
    std::memcpy(request.output.base, buffer.data() + piece * static_cast<std::size_t>(rank_), piece);
  if (request.kind != OperationKind::all_gather || buffer.data() != scratch_.data()) return;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(size_); ++rank)
    std::memcpy(request.output.at(rank), buffer.data() + piece * rank, piece);
}

}  // namespace rondo
