#include "rondo/backend/membership.h"

#include <c10/util/Exception.h>

#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <fstream>
#include <nlohmann/json.hpp>

#include "rondo/backend/engine/store_adapter.h"
#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/log.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"
#include "rondo/channel/rank_values.h"
#include "rondo/channel/shared_store.h"
#include "rondo/env/environment.h"

namespace rondo {
namespace {

constexpr Duration kReminderOfMissing = std::chrono::seconds(5);

std::string key_of(int rank) { return str("host/", rank); }

std::string link_target(const char* path) {
  std::array<char, 64> target{};
  return readlink(path, target.data(), target.size() - 1) > 0 ? target.data() : "";
}

std::string launcher_store_identity() {
  const auto descriptor = env::lookup(env::process_environment(), kStoreDescriptorVariable);
  struct stat status {};
  if (!descriptor ||
      fstat(static_cast<int>(parse_integer(*descriptor, kStoreDescriptorVariable)), &status) != 0)
    return {};
  return str(status.st_dev, ":", status.st_ino);
}

[[noreturn]] void throw_missing(const env::Identity& identity, StoreFromC10d& store, Duration timeout) {
  const std::vector<int> missing = ranks_without_value(store, identity.world_size, key_of);
  throw TimeoutError(str("rank ", identity.rank, " of ", identity.world_size, " waited ", to_string(timeout),
                         " for all ranks to join; missing: ", join(missing, ", "),
                         ". Were all ranks started, with the same world size?"),
                     missing);
}

// Returns what `rank` has announced. Rank 0 says in the log from time to time who is missing.
std::string wait_for_rank(const env::Identity& identity, StoreFromC10d& store, int rank, Deadline deadline,
                          Duration timeout) {
  while (true) {
    try {
      return store.get(key_of(rank),
                       {Deadline::after(std::min(kReminderOfMissing, deadline.remaining())), nullptr});
    } catch (const TimeoutError& error) {
      // One that names a rank says that the store itself does not answer.
      if (deadline.passed() || !error.ranks().empty()) throw_missing(identity, store, timeout);
    }
    if (identity.rank > 0) continue;
    const std::vector<int> missing = ranks_without_value(store, identity.world_size, key_of);
    log::warning("still waiting for ranks to join; missing: ", join(missing, ", "), " of ",
                 identity.world_size);
  }
}

}  // namespace

std::string host_identity() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  return str(boot, " ", link_target("/proc/self/ns/pid"), " ", link_target("/proc/self/ns/net"));
}

RankClaim::RankClaim(const env::Identity& identity, c10::intrusive_ptr<c10d::Store> store, std::int64_t epoch)
    : key_(str("claimed/", identity.rank)), store_(std::move(store)) {
  // The time tells two calls of one process apart.
  const std::string own = nlohmann::json{
      {"pid", getpid()},
      {"host_name", identity.host},
      {"host", host_identity()},
      {"time",
       monotonic_ns()}}.dump();
  std::string present;
  try {
    present = StoreFromC10d(store_).compare_set(key_, "", own);
  } catch (const c10::NotImplementedError&) {  // a store of somebody else's
    return;
  }
  if (present == own) return;
  const std::string source = "what another process said of this rank";
  const nlohmann::json other = parse_json_strict(present, source);
  const auto text = [&](const char* key) {
    return json_text(json_member(other, key, source), json_place(source, key));
  };
  const std::int64_t pid = json_integer(json_member(other, "pid", source), json_place(source, "pid"));
  if (pid == getpid() && text("host") == host_identity()) {
    throw UsageError(
        str("rondo::init() was called twice by rank ", identity.rank, " (pid ", pid, ") in epoch ", epoch,
            " of the job: use the first Context, or give InitOptions::epoch a number that no call "
            "had before, the same on all ranks"));
  }
  throw UsageError(
      str("rank ", identity.rank, " is claimed by two processes: pid ", getpid(), " on host ", identity.host,
          " and pid ", pid, " on host ", text("host_name"),
          ". Was the same --node-rank given on two hosts, or is another job using the address?"));
}

RankClaim::~RankClaim() {
  if (kept_) return;
  try {
    store_->deleteKey(key_);
  } catch (const std::exception&) {
    // The store is gone, and with it the rank.
  }
}

Member this_member(const env::Identity& identity, const std::string& host) {
  return {host.empty() ? host_identity() : host, identity.host, launcher_store_identity()};
}

std::vector<Member> exchange_members(const env::Identity& identity, const Member& own,
                                     const c10::intrusive_ptr<c10d::Store>& store, Duration timeout) {
  StoreFromC10d view(store);
  const nlohmann::json announced = {{"host", own.host},
                                    {"host_name", own.host_name},
                                    {"launcher_store", own.launcher_store},
                                    {"world_size", identity.world_size}};
  view.set(key_of(identity.rank), announced.dump());
  const Deadline deadline = Deadline::after(timeout);
  std::vector<Member> members;
  for (int rank = 0; rank < identity.world_size; ++rank) {
    nlohmann::json found;
    const std::string source = str("what rank ", rank, " said of itself");
    const auto text = [&](const char* key) {
      return json_text(json_member(found, key, source), json_place(source, key));
    };
    found = parse_json_strict(wait_for_rank(identity, view, rank, deadline, timeout), source);
    const std::int64_t world_size =
        json_integer(json_member(found, "world_size", source), json_place(source, "world_size"));
    if (world_size != identity.world_size) {
      throw UsageError(str("rank ", identity.rank, " on host ", own.host_name, " counts ",
                           identity.world_size, " ranks, but rank ", rank, " on host ", text("host_name"),
                           " counts ", world_size,
                           ". Give every host the same --nnodes, and the same --nproc-per-node."));
    }
    members.push_back({text("host"), text("host_name"), text("launcher_store")});
  }
  return members;
}

bool deterministic_by_environment() {
  const std::string value = env::lookup(env::process_environment(), kDeterministicVariable).value_or("0");
  if (value != "0" && value != "1")
    throw UsageError(
        str(kDeterministicVariable, "=", value, ": it is 1, for sums in the order of ranks, or 0"));
  return value == "1";
}

bool agree_on_deterministic(bool wish, int rank, int world_size, Store& store, Duration timeout) {
  constexpr const char* kKey = "deterministic";
  if (world_size == 1) return wish;
  if (rank == 0) store.set(kKey, wish ? "1" : "0");
  return value_of_rank(store, kKey, 0, "the order of additions", timeout) == "1";
}

}  // namespace rondo
