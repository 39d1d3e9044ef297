#include "rondo/backend/nccl/device_watch.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>

#include "rondo/backend/engine/engine_text.h"
#include "rondo/backend/engine/failure_record.h"
#include "rondo/backend/nccl/factory.h"
#include "rondo/base/error.h"
#include "rondo/base/log.h"
#include "rondo/base/printable.h"
#include "rondo/base/replica.h"
#include "rondo/base/text.h"
#include "rondo/channel/failure.h"
#include "rondo/device/devices.h"

namespace rondo {
namespace {

// Time that rank 0 waits between two heartbeats; the other ranks wait for it inside the next one.
constexpr Duration kPace = std::chrono::milliseconds(30);
// Time in which an operation may still end that needs a rank which has left.
constexpr Duration kLeftGrace = std::chrono::seconds(1);
// Time to wait for the watch's failure after an engine's error: an engine may see a closed connection first.
constexpr Duration kCausePatience = std::chrono::seconds(1);
// Longest wait of a leaving rank for its last heartbeat, which ends within 3 s if a rank is stopped.
constexpr Duration kLeavePatience = std::chrono::seconds(4);

// Returns a number that is the same on all members of a group and unique in the job. Collective.
std::int64_t number_of(const BackendRequest& request) {
  constexpr const char* kKey = "number among watched groups";
  if (!request.job_store) return 1;
  if (request.rank == 0)
    request.store->set(kKey, std::to_string(request.job_store->add("watched groups", 1)));
  request.store->wait({kKey}, std::chrono::ceil<std::chrono::milliseconds>(request.timeout));
  return parse_integer(request.store->get_to_str(kKey), kKey);
}

BackendRequest for_heartbeats(const BackendRequest& request) {
  BackendRequest own = part_of(request, "heartbeats");
  own.group_name = str(request.group_name, " heartbeats");
  own.job_store = {};  // a failure of the heartbeats is not a consequence of another one
  own.deterministic = false;
  return own;
}

// Returns the index of `rank` in a list, or -1.
int place_of(int rank, const std::vector<int>& ranks) {
  const auto found = std::find(ranks.begin(), ranks.end(), rank);
  return found != ranks.end() ? static_cast<int>(found - ranks.begin()) : -1;
}

bool contains(const std::vector<int>& ranks, int rank) { return place_of(rank, ranks) >= 0; }

// Converts the ranks of `error` from world ranks to ranks of a group.
std::exception_ptr as_seen_by(const WatchedGroup& group, const std::exception_ptr& error,
                              const std::vector<int>& world_ranks) {
  const ChannelFailure failure = describe_failure(error, -1);
  std::vector<int> ranks;
  try {
    std::rethrow_exception(error);
  } catch (const CommunicationError& known) {
    for (const int rank : known.ranks()) {
      const int member = place_of(world_ranks[static_cast<std::size_t>(rank)], group.world_ranks);
      if (member >= 0) ranks.push_back(member);
    }
  } catch (const std::exception&) {
    // The error names no rank.
  }
  const std::string text =
      str("group '", group.name, "': operations between accelerators have been ended: ", failure.text);
  switch (failure.kind) {
    case ChannelFailure::Kind::lost:
      return std::make_exception_ptr(PeerLostError(text, ranks));
    case ChannelFailure::Kind::timeout:
      return std::make_exception_ptr(TimeoutError(text, ranks));
    case ChannelFailure::Kind::mismatch:
    case ChannelFailure::Kind::other:
      break;
  }
  return std::make_exception_ptr(CommunicationError(text, ranks));
}

}  // namespace

void DeviceOperation::set_work(const c10::intrusive_ptr<c10d::Work>& work) {
  const std::lock_guard lock(mutex_);
  work_.emplace(work);
}

void DeviceOperation::cancel() {
  const std::lock_guard lock(mutex_);
  is_cancelled_ = true;
}

void DeviceOperation::note_wait(c10::Device device) {
  c10::Event event = record_event(device);
  const std::lock_guard lock(mutex_);
  event_.emplace(std::move(event));
}

bool DeviceOperation::has_ended() {
  const std::lock_guard lock(mutex_);
  if (is_cancelled_) return true;
  if (event_) return event_->query();
  if (!work_) return false;
  const c10::intrusive_ptr<c10d::Work> work = work_->lock();
  return !work || work->isCompleted();
}

bool DeviceOperation::is_awaited() {
  const std::lock_guard lock(mutex_);
  return event_.has_value();
}

// The message of a rank to all others in a heartbeat.
struct DeviceWatch::Beat {
  std::int64_t leaves = 0;   // 1: this is the rank's last heartbeat
  std::int64_t asks = 0;     // id of a group with an overdue operation; 0: none
  std::int64_t answers = 0;  // id of the group that the last heartbeat asked about; 0: none
  std::int64_t issued = -1;  // operations that the rank has started in that group; -1: not a member
};

DeviceWatch::DeviceWatch(const BackendRequest& request)
    : rank_(request.rank), world_ranks_(request.world_ranks) {
  if (request.size < 2) return;
  heartbeats_ = request.make(engine_of_auto(request.one_host()), for_heartbeats(request)).backend;
  thread_ = replica_thread([this] { run(); });
}

DeviceWatch::~DeviceWatch() { leave(); }

std::shared_ptr<WatchedGroup> DeviceWatch::add(const BackendRequest& request,
                                               c10::intrusive_ptr<c10d::Backend> device,
                                               c10::intrusive_ptr<c10d::Backend> control) {
  auto group = std::make_shared<WatchedGroup>();
  group->name = request.group_name;
  group->id = number_of(request);
  group->world_ranks = request.world_ranks;
  group->device = std::move(device);
  group->control = std::move(control);
  const std::lock_guard lock(mutex_);
  if (failure_) group->failure = as_seen_by(*group, failure_, world_ranks_);
  groups_.push_back(group);
  return group;
}

void DeviceWatch::remove(const std::shared_ptr<WatchedGroup>& group) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (std::erase(groups_, group) == 0 || !groups_.empty()) return;
  }
  leave();
}

void DeviceWatch::leave() noexcept {
  if (!thread_.joinable()) return;
  bool has_ended = false;
  {
    std::unique_lock lock(mutex_);
    is_leaving_ = true;
    changed_.notify_all();
    has_ended = changed_.wait_for(lock, kLeavePatience, [this] { return thread_has_ended_; });
  }
  try {
    if (!has_ended) heartbeats_->abort();
  } catch (const std::exception& error) {
    log::warning("heartbeats between ranks with accelerators: ", error.what());
  }
  thread_.join();
}

bool DeviceWatch::has_left() const {
  const std::lock_guard lock(mutex_);
  return is_leaving_;
}

std::shared_ptr<DeviceOperation> DeviceWatch::begin(WatchedGroup& group, std::string name,
                                                    std::vector<int> peers, Duration timeout) {
  const std::lock_guard lock(mutex_);
  if (group.failure) std::rethrow_exception(group.failure);
  auto operation =
      std::make_shared<DeviceOperation>(std::move(name), ++group.issued, std::move(peers), timeout);
  if (heartbeats_) group.operations.push_back(operation);
  return operation;
}

void DeviceWatch::throw_if_failed(const WatchedGroup& group) const {
  const std::lock_guard lock(mutex_);
  if (group.failure) std::rethrow_exception(group.failure);
}

void DeviceWatch::throw_cause_of(const WatchedGroup& group, const std::exception_ptr& error) {
  std::unique_lock lock(mutex_);
  if (heartbeats_)
    changed_.wait_for(lock, kCausePatience, [&] { return group.failure || thread_has_ended_; });
  std::rethrow_exception(group.failure ? group.failure : error);
}

bool DeviceWatch::has_lost_results() const {
  const std::lock_guard lock(mutex_);
  return has_lost_results_;
}

void DeviceWatch::run() {
  try {
    while (exchange_beats()) {
    }
    guard_alone();
  } catch (...) {
    fail(std::current_exception());
  }
  const std::lock_guard lock(mutex_);
  thread_has_ended_ = true;
  changed_.notify_all();
}

// Exchanges a heartbeat. Returns false after the last one, in which a rank leaves.
bool DeviceWatch::exchange_beats() {
  if (rank_ == 0) pace();
  Beat own = compose();
  const auto fields = static_cast<std::int64_t>(sizeof own / sizeof(std::int64_t));
  const auto ranks = static_cast<std::int64_t>(world_ranks_.size());
  at::Tensor input = at::empty({fields}, at::kLong), output = at::empty({ranks * fields}, at::kLong);
  std::memcpy(input.mutable_data_ptr(), &own, sizeof own);
  heartbeats_->_allgather_base(output, input, {})->wait();
  std::vector<Beat> beats(world_ranks_.size());
  std::memcpy(beats.data(), output.const_data_ptr(), output.nbytes());
  return digest(beats);
}

void DeviceWatch::pace() {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kPace, [this] { return is_leaving_; });
}

// Returns the oldest unfinished operation of each group. Queries devices without the lock.
std::vector<DeviceWatch::Overdue> DeviceWatch::oldest_of_groups() {
  std::vector<std::shared_ptr<WatchedGroup>> groups;
  {
    const std::lock_guard lock(mutex_);
    groups = groups_;
  }
  std::vector<Overdue> oldest;
  for (const std::shared_ptr<WatchedGroup>& group : groups) {
    for (;;) {
      std::shared_ptr<DeviceOperation> first;
      {
        const std::lock_guard lock(mutex_);
        if (!group->operations.empty()) first = group->operations.front();
      }
      if (!first) break;
      if (!first->has_ended()) {
        oldest.push_back({group, first});
        break;
      }
      const std::lock_guard lock(mutex_);
      group->operations.pop_front();
    }
  }
  return oldest;
}

// Returns a collective past its deadline. Throws if a message is past its deadline, naming its peers.
DeviceWatch::Overdue DeviceWatch::oldest_overdue() {
  for (Overdue& each : oldest_of_groups()) {
    if (!each.operation->deadline.passed()) continue;
    if (each.operation->peers.empty()) return std::move(each);
    std::vector<int> peers;  // ranks of the world
    for (const int peer : each.operation->peers)
      peers.push_back(place_of(each.group->world_ranks[static_cast<std::size_t>(peer)], world_ranks_));
    throw TimeoutError(str(each.operation->name, " of group '", each.group->name, "', number ",
                           each.operation->number, ", timed out after ",
                           to_string(Clock::now() - each.operation->started), ": rank ", join(peers, ", "),
                           " has not started it. It is stopped, stuck, or slower than the timeout allows."),
                       peers);
  }
  return {};
}

DeviceWatch::Beat DeviceWatch::compose() {
  Beat own;
  overdue_ = oldest_overdue();
  if (overdue_.operation) own.asks = overdue_.group->id;
  const std::lock_guard lock(mutex_);
  own.leaves = is_leaving_ ? 1 : 0;
  own.answers = asked_;
  for (const std::shared_ptr<WatchedGroup>& group : groups_) {
    if (group->id == asked_) own.issued = static_cast<std::int64_t>(group->issued);
  }
  return own;
}

// All ranks select the same group to ask about next.
bool DeviceWatch::digest(std::span<const Beat> beats) {
  if (asked_ != 0 && asker_ == rank_ && overdue_.operation && overdue_.group->id == asked_) {
    const DeviceOperation& late = *overdue_.operation;
    std::vector<int> missing;
    for (std::size_t rank = 0; rank < beats.size(); ++rank) {
      const bool is_member = contains(overdue_.group->world_ranks, world_ranks_[rank]);
      if (is_member && beats[rank].issued < static_cast<std::int64_t>(late.number))
        missing.push_back(static_cast<int>(rank));
    }
    const std::string who =
        missing.empty() ? std::string("all ranks have started it, but it has not finished on the devices")
                        : str("missing: rank ", join(missing, ", "),
                              ". A missing rank is stuck, or slower than the timeout allows");
    throw TimeoutError(
        str(late.name, " of group '", overdue_.group->name, "', number ", late.number, ", timed out on rank ",
            rank_, " after ", to_string(Clock::now() - late.started), ": ", who, "."),
        missing);
  }
  asked_ = 0;
  asker_ = -1;
  std::vector<int> leaving;
  for (std::size_t rank = 0; rank < beats.size(); ++rank) {
    if (beats[rank].asks != 0 && asked_ == 0) {
      asked_ = beats[rank].asks;
      asker_ = static_cast<int>(rank);
    }
    if (beats[rank].leaves != 0) leaving.push_back(static_cast<int>(rank));
  }
  if (leaving.empty()) return true;
  const std::lock_guard lock(mutex_);
  left_ = std::move(leaving);
  return false;
}

// Checks operations without heartbeats, after a rank has left.
void DeviceWatch::guard_alone() {
  const Deadline grace = Deadline::after(kLeftGrace);
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      if (changed_.wait_for(lock, kPace, [this] { return is_leaving_; })) return;
    }
    for (const Overdue& each : oldest_of_groups()) {
      std::vector<int> needed;
      for (const int rank : left_) {
        if (contains(each.group->world_ranks, world_ranks_[static_cast<std::size_t>(rank)]))
          needed.push_back(rank);
      }
      const bool may_end = !grace.passed() || Clock::now() - each.operation->started < kLeftGrace;
      if (needed.empty() || may_end) continue;
      throw PeerLostError(
          str(each.operation->name, " of group '", each.group->name, "', number ", each.operation->number,
              ", cannot complete on rank ", rank_, ": rank ", join(needed, ", "),
              " has left the job. Did it make fewer calls than this rank?"),
          needed);
    }
    if (const Overdue late = oldest_overdue(); late.operation) {
      throw TimeoutError(str(late.operation->name, " of group '", late.group->name, "', number ",
                             late.operation->number, ", timed out on rank ", rank_, " after ",
                             to_string(Clock::now() - late.operation->started), "."),
                         {});
    }
  }
}

void DeviceWatch::fail(const std::exception_ptr& error) {
  std::vector<std::shared_ptr<WatchedGroup>> groups;
  std::vector<std::shared_ptr<DeviceOperation>> operations;
  {
    const std::lock_guard lock(mutex_);
    if (is_leaving_ && groups_.empty()) return;
    groups = groups_;
    for (const auto& group : groups_)
      operations.insert(operations.end(), group->operations.begin(), group->operations.end());
  }
  const bool has_lost_results = std::any_of(operations.begin(), operations.end(), [](const auto& operation) {
    return operation->is_awaited() && !operation->has_ended();
  });
  std::vector<std::exception_ptr> failures;
  {
    const std::lock_guard lock(mutex_);
    failure_ = error;
    has_lost_results_ = has_lost_results;
    for (const auto& group : groups_) group->failure = as_seen_by(*group, error, world_ranks_);
    for (const auto& group : groups) failures.push_back(group->failure);
    changed_.notify_all();
  }
  const auto carry_out = [](const auto& step) {
    try {
      step();
    } catch (const std::exception& second) {
      log::warning("after a failure between accelerators: ", plain_message(second));
    }
  };
  carry_out([&] { rondo::fail(*heartbeats_, error); });  // notifies the peers
  for (const auto& group : groups) carry_out([&] { group->device->abort(); });
  for (std::size_t i = 0; i < groups.size(); ++i)
    carry_out([&] { rondo::fail(*groups[i]->control, failures[i]); });
}

}  // namespace rondo
