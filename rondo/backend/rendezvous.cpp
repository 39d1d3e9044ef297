#include "rondo/backend/rendezvous.h"

#include <c10/util/Exception.h>
#include <sys/stat.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "rondo/backend/engine/store_adapter.h"
#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/log.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"
#include "rondo/channel/shared_store.h"
#include "rondo/channel/store.h"
#include "rondo/env/address.h"
#include "rondo/env/environment.h"
#include "rondo/launch/end_notice.h"
#include "rondo/launch/network.h"
#include "rondo/launch/worker_environment.h"

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

// Returns the announcement of `rank`. On rank 0, logs the missing ranks from time to time.
std::string wait_for_rank(const env::Identity& identity, StoreFromC10d& store, int rank, Deadline deadline,
                          Duration timeout) {
  while (true) {
    try {
      return store.get(key_of(rank),
                       {Deadline::after(std::min(kReminderOfMissing, deadline.remaining())), nullptr});
    } catch (const TimeoutError& error) {
      // If an error names a rank, the store itself does not answer.
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
  // The time distinguishes two calls of one process.
  const std::string own = nlohmann::json{
      {"pid", getpid()},
      {"host_name", identity.host},
      {"host", host_identity()},
      {"time",
       monotonic_ns()}}.dump();
  std::string present;
  try {
    present = StoreFromC10d(store_).compare_set(key_, "", own);
  } catch (const c10::NotImplementedError&) {  // a store of another library
    return;
  }
  if (present == own) return;
  const std::string source = "another process's record of this rank";
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
    // The store is lost, and the claim with it.
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
    const std::string source = str("the record of rank ", rank);
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

namespace {

// Key under which rank 0 stores the attempt of the job that its store belongs to.
constexpr const char* kAttemptKey = "rondo/attempt";

// Time for a busy name server.
constexpr Duration kPatienceWithNames = std::chrono::seconds(3);

// Time for the launcher of rank 0's host, which reports why rank 0 ended once all of that host's ranks have
// ended.
constexpr Duration kPatienceWithLauncher = std::chrono::seconds(8);

// Added to the time for a connection, so that c10d's own timeout, which has the better message, comes first.
constexpr auto kConnectTime = std::chrono::seconds(2);

// Time of libtorch's own attempts to connect. libtorch keeps trying after rank 0 has ended and its launcher
// listens.
constexpr Duration kConnectPart = std::chrono::seconds(5);

// Interval between warnings that the process listening at rank 0's address does not answer.
constexpr Duration kReminderOfSilence = std::chrono::seconds(10);

// Returns the store of this host's launcher in a job of several hosts; null otherwise.
c10::intrusive_ptr<c10d::Store> launcher_store_of_several_hosts(const env::Identity& identity) {
  if (!identity.local_world_size || *identity.local_world_size == identity.world_size) return {};
  return launcher_store();
}

// Throws JobOverError if rank 0's launcher listens in its place.
void throw_if_over(const env::Identity& identity, const std::string& host, int port) {
  if (!launcher_store_of_several_hosts(identity)) return;
  if (const auto notice = launch::read_notice(host, port)) {
    throw JobOverError(
        str("rank ", identity.rank, " waited for others to join, and the launcher of rank 0 at ", host, ":",
            port, " says: ", *notice),
        {0});
  }
}

bool agent_listens() {
  const auto agent = env::lookup(env::process_environment(), "TORCHELASTIC_USE_AGENT_STORE");
  return agent && *agent == "True";
}

// Throws UsageError for a host name from a scheduler's list of hosts that has no address: a list may hold
// names that only the scheduler can resolve, and then all ranks would wait for the whole timeout. A name that
// the user gave may still get its address, as that of a Kubernetes service does.
void require_address_of_listed_host(const env::Identity& identity, const std::string& host) {
  const std::string origin = identity.origin(env::Field::master_addr);
  if (!origin.starts_with("first host of ")) return;
  const std::string error = launch::wait_for_address(host, kPatienceWithNames);
  if (error.empty()) return;
  throw UsageError(str("rank 0 is to be at ", host, ", the ", origin, ", but ", error,
                       "; set MASTER_ADDR to a name or address of rank 0's host that all hosts know"));
}

c10::intrusive_ptr<c10d::Store> tcp_store(const env::Identity& identity, const std::string& host, int port,
                                          Duration timeout) {
  require_address_of_listed_host(identity, host);
  const auto environment = env::process_environment();
  const bool listens = identity.rank == 0 && !agent_listens();
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(port);
  options.isServer = listens;
  options.waitWorkers = false;
  options.timeout = std::chrono::duration_cast<std::chrono::milliseconds>(timeout);
  // Several contexts of one process may meet at one address, one after the other or as threads.
  options.multiTenant = true;
  std::string connect_to = host;
  if (listens) {
    const launch::Listener listener =
        launch::listen_at(host, port, env::lookup(environment, "GLOO_SOCKET_IFNAME").value_or(""));
    connect_to = listener.address;
    if (listener.descriptor >= 0) options.masterListenFd = listener.descriptor;
  }
  const auto failed = [&](const std::string& reason) {
    return str("rank ", identity.rank, listens ? " cannot listen at " : " cannot reach rank 0 at ", host, ":",
               port, ": ", reason, ". The address comes from ", identity.origin(env::Field::master_addr),
               " and ", identity.origin(env::Field::master_port),
               listens
                   ? "; is another job using the port?"
                   : "; is rank 0 running, is this the address of its host on the network that both share, "
                     "and does no firewall stand between?");
  };
  const std::string keeper = str(agent_listens() ? "the launcher's agent" : "rank 0", " at ", host, ":", port,
                                 ", which keeps the job's store,");
  const std::string silent =
      "it accepts connections, but does not answer as the store of a job; is its process stopped, or does "
      "another program use the port?";
  TimePoint reminder = Clock::now() + kReminderOfSilence;
  const auto remind = [&] {
    if (listens || Clock::now() < reminder) return;
    log::warning("still waiting for rank 0 at ", host, ":", port, ": ", silent);
    reminder = Clock::now() + kReminderOfSilence;
  };
  const auto made = std::make_shared<c10::intrusive_ptr<c10d::Store>>();
  const Deadline deadline = Deadline::after(timeout);
  while (!*made) {
    if (!listens) {
      const std::string reason = launch::wait_for_listener(host, port, deadline.remaining());
      if (!reason.empty())
        throw TimeoutError(failed(str(reason, " (tried for ", to_string(timeout), ")")), {0});
      throw_if_over(identity, host, port);
      options.timeout =
          std::chrono::ceil<std::chrono::milliseconds>(std::min(kConnectPart, deadline.remaining()));
    }
    try {
      run_bounded([=] { *made = c10::make_intrusive<c10d::TCPStore>(connect_to, options); },
                  deadline.remaining() + kConnectTime, keeper, remind);
    } catch (const TimeoutError&) {
      throw TimeoutError(failed(str("within ", to_string(timeout), " ", silent)), {0});
    } catch (const PeerLostError& e) {
      if (listens) {
        const std::string reason = launch::why_port_is_taken(port);
        throw Error(failed(reason.empty() ? e.what() : reason));
      }
      if (deadline.passed()) throw TimeoutError(failed(str("within ", to_string(timeout), " ", silent)), {0});
      remind();
    } catch (const std::exception& e) {
      throw Error(failed(e.what()));
    }
  }
  (*made)->setTimeout(std::chrono::ceil<std::chrono::milliseconds>(timeout));
  return c10::make_intrusive<BoundedStore>(
      *made,
      BoundedStore::Options{.keeper = keeper,
                            .timeout = timeout,
                            .over_key = launch::end_key(identity.restart_count),
                            .over_text = str("attempt ", identity.restart_count, " of the job is over: rank ",
                                             identity.rank, " waited for others to join, and ")});
}

void wait_for_key(c10d::Store& store, const std::string& key, Deadline deadline) {
  store.wait({key}, std::max(std::chrono::duration_cast<std::chrono::milliseconds>(deadline.remaining()),
                             std::chrono::milliseconds(1)));
}

// Returns the attempt that a store belongs to. Throws c10d's error if the store is lost before.
int attempt_of(c10d::Store& store, Deadline deadline) {
  wait_for_key(store, kAttemptKey, deadline);
  const std::vector<std::uint8_t> said = store.get(kAttemptKey);
  return static_cast<int>(parse_integer(std::string(said.begin(), said.end()), kAttemptKey));
}

// Returns whether the store of `attempt` is this rank's; false if it was of an earlier attempt, which has
// ended.
bool is_own_attempt(c10d::Store& store, int attempt, const env::Identity& identity, Deadline deadline) {
  if (attempt == identity.restart_count) return true;
  if (attempt > identity.restart_count) {
    throw Error(str("rank ", identity.rank, " was started for attempt ", identity.restart_count,
                    " of the job, but rank 0 is in attempt ", attempt,
                    ": this host has restarted less often. Give it --restart-count ", attempt, "."));
  }
  log::info("rank 0 is still in attempt ", attempt, " of the job; waiting for attempt ",
            identity.restart_count);
  try {
    // Ends the waits of ranks that still wait in the old store. Otherwise they would wait until their
    // deadline for a rank of this host, which has restarted.
    store.set(launch::end_key(attempt),
              "a rank of a restarted host has joined the next attempt; that host's own output says why");
    wait_for_key(store, str(kAttemptKey, "/", identity.restart_count), deadline);
  } catch (const std::exception&) {  // rank 0 of that attempt has ended, or the time is over
  }
  return false;
}

// Hosts of one job change to the next attempt one after the other: a rank may start while rank 0 of the
// attempt before, whose store ends with it, still listens.
c10::intrusive_ptr<c10d::Store> tcp_store_of_attempt(const env::Identity& identity, const std::string& host,
                                                     int port, Duration timeout) {
  const Deadline deadline = Deadline::after(timeout);
  if (agent_listens()) return tcp_store(identity, host, port, timeout);
  if (identity.rank == 0) {
    auto store = tcp_store(identity, host, port, timeout);
    const std::string attempt = str(identity.restart_count);
    store->set(kAttemptKey, std::vector<std::uint8_t>(attempt.begin(), attempt.end()));
    return store;
  }
  while (true) {
    c10::intrusive_ptr<c10d::Store> store;
    int attempt = 0;
    try {
      store = tcp_store(identity, host, port, deadline.remaining());
      attempt = attempt_of(*store, deadline);
    } catch (const TimeoutError&) {
      throw;
    } catch (const JobOverError&) {
      throw;
    } catch (const std::exception&) {
      if (identity.restart_count == 0 || deadline.passed()) throw;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));  // until the old listener has gone
      continue;
    }
    if (is_own_attempt(*store, attempt, identity, deadline)) return store;
    if (deadline.passed()) {
      throw TimeoutError(str("rank ", identity.rank, " waited ", to_string(timeout), " for attempt ",
                             identity.restart_count, " of the job, but rank 0 at ", host, ":", port,
                             " is in an earlier one. Is --restart-count too high?"),
                         {0});
    }
  }
}

}  // namespace

c10::intrusive_ptr<c10d::Store> meet(const env::Identity& identity, const std::string& init_method,
                                     Duration timeout) {
  const env::InitMethod method = env::parse_init_method(init_method);
  if (method.kind == env::InitMethod::Kind::file) {
    return c10::make_intrusive<c10d::FileStore>(method.path, identity.world_size);
  }
  if (method.kind == env::InitMethod::Kind::tcp)
    return tcp_store_of_attempt(identity, method.host, method.port, timeout);
  if (identity.world_size == 1) return c10::make_intrusive<c10d::HashStore>();
  // A launcher's store reaches only the ranks that it started, which on several hosts are not all.
  if (identity.local_world_size == identity.world_size) {
    if (auto store = launcher_store()) return store;
  }
  return tcp_store_of_attempt(identity, identity.master_addr, identity.master_port, timeout);
}

std::optional<std::string> launchers_notice(const env::Identity& identity) {
  const auto environment = env::process_environment();
  const auto restarts = env::lookup(environment, "TORCHELASTIC_MAX_RESTARTS");
  // A host that restarts its ranks publishes no notice.
  const bool is_last =
      !restarts || identity.restart_count >= parse_integer(*restarts, "TORCHELASTIC_MAX_RESTARTS");
  if (identity.rank == 0 || !is_last || !launcher_store_of_several_hosts(identity)) return std::nullopt;
  return launch::wait_for_notice(identity.master_addr, identity.master_port,
                                 Deadline::after(kPatienceWithLauncher));
}

c10::intrusive_ptr<c10d::Store> launcher_store() {
  const auto descriptor = env::lookup(env::process_environment(), kStoreDescriptorVariable);
  if (!descriptor) return {};
  const auto number = static_cast<int>(parse_integer(*descriptor, kStoreDescriptorVariable));
  return c10::make_intrusive<StoreForC10d>(SharedStore::open(number));
}

void announce_patience(const env::Identity& identity, Duration patience) {
  const auto store = launcher_store_of_several_hosts(identity);
  if (!store) return;
  StoreFromC10d view(store);
  const auto own = std::chrono::duration_cast<std::chrono::milliseconds>(patience).count();
  std::string known = view.try_get(launch::kPatienceKey).value_or("");
  while (known.empty() || parse_integer(known, launch::kPatienceKey) < own) {
    const std::string present = view.compare_set(launch::kPatienceKey, known, str(own));
    if (present == str(own)) return;
    known = present;
  }
}

void announce_joining(const env::Identity& identity, bool joining) {
  if (const auto store = launcher_store_of_several_hosts(identity))
    StoreFromC10d(store).set(launch::joining_key(identity.rank), joining ? "1" : "0");
}

void relay_end_notice(const env::Identity& identity, const std::string& reason) {
  if (const auto store = launcher_store_of_several_hosts(identity))
    StoreFromC10d(store).set(launch::kEndNoticeKey, reason);
}

Duration join_timeout(Duration otherwise) {
  const auto text = env::lookup(env::process_environment(), launch::kJoinTimeoutVariable);
  return text ? parse_duration(*text, launch::kJoinTimeoutVariable) : bounded_duration(otherwise);
}

}  // namespace rondo
