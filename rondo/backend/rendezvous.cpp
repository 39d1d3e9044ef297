#include "rondo/backend/rendezvous.h"

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <chrono>
#include <thread>

#include "rondo/backend/engine/store_adapter.h"
#include "rondo/base/error.h"
#include "rondo/base/log.h"
#include "rondo/base/text.h"
#include "rondo/channel/shared_store.h"
#include "rondo/env/environment.h"
#include "rondo/env/init_method.h"
#include "rondo/launch/end_notice.h"
#include "rondo/launch/network.h"
#include "rondo/launch/worker_environment.h"

namespace rondo {
namespace {

// Under this key rank 0 says which attempt of the job its store belongs to.
constexpr const char* kAttemptKey = "rondo/attempt";

// For a name server that is busy.
constexpr Duration kPatienceWithNames = std::chrono::seconds(3);

// For the launcher of rank 0's host, which says why rank 0 is gone once all of that host's ranks have ended.
constexpr Duration kPatienceWithLauncher = std::chrono::seconds(8);

// Added to the time in which a connection must come about: c10d has the same, and its word is better.
constexpr auto kConnectTime = std::chrono::seconds(2);

// So long libtorch tries to connect by itself. It tries on where rank 0 has ended and its launcher listens.
constexpr Duration kConnectPart = std::chrono::seconds(5);

// The store of this host's launcher in a job of several hosts; null elsewhere.
c10::intrusive_ptr<c10d::Store> launcher_store_of_several_hosts(const env::Identity& identity) {
  if (!identity.local_world_size || *identity.local_world_size == identity.world_size) return {};
  return launcher_store();
}

// Throws JobOverError where rank 0's launcher listens in its place.
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

// Throws UsageError for a host name that was taken from a scheduler's list of hosts and has no address: a
// list may hold names that only the scheduler knows, and then all ranks would wait for the whole timeout. A
// name that the user gave may still get its address, as that of a Kubernetes service does.
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
                  deadline.remaining() + kConnectTime, keeper);
    } catch (const TimeoutError&) {
      throw;
    } catch (const PeerLostError& e) {
      if (listens || deadline.passed()) throw Error(failed(e.what()));
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

// The attempt that a store belongs to. Throws what c10d throws where the store is lost before it says so.
int attempt_of(c10d::Store& store, Deadline deadline) {
  wait_for_key(store, kAttemptKey, deadline);
  const std::vector<std::uint8_t> said = store.get(kAttemptKey);
  return static_cast<int>(parse_integer(std::string(said.begin(), said.end()), kAttemptKey));
}

// Whether the store of `attempt` is this rank's; false when it was of an earlier one and has gone with it.
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
    // Ranks that still wait there for others to join would do so until their deadline: a rank of this host,
    // which has restarted, is missing for ever.
    store.set(launch::end_key(attempt),
              "a rank of a host that has restarted is there for the next attempt; that host's own output "
              "says why");
    wait_for_key(store, str(kAttemptKey, "/", identity.restart_count), deadline);
  } catch (const std::exception&) {  // its rank 0 has ended, or the time is over
  }
  return false;
}

// Hosts of one job change to the next attempt one after the other: a rank may come while rank 0 of the
// attempt before still listens, whose store ends with it.
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
      std::this_thread::sleep_for(std::chrono::milliseconds(10));  // until what refuses has gone
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
  // A launcher's store reaches the ranks that it started, which on several hosts are not all.
  if (identity.local_world_size == identity.world_size) {
    if (auto store = launcher_store()) return store;
  }
  return tcp_store_of_attempt(identity, identity.master_addr, identity.master_port, timeout);
}

std::optional<std::string> launchers_notice(const env::Identity& identity) {
  const auto environment = env::process_environment();
  const auto restarts = env::lookup(environment, "TORCHELASTIC_MAX_RESTARTS");
  // A host that starts its ranks again says nothing.
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

void announce_told(const env::Identity& identity, const std::string& reason) {
  if (const auto store = launcher_store_of_several_hosts(identity))
    StoreFromC10d(store).set(launch::kToldKey, reason);
}

Duration join_timeout(Duration otherwise) {
  const auto text = env::lookup(env::process_environment(), launch::kJoinTimeoutVariable);
  return text ? parse_duration(*text, launch::kJoinTimeoutVariable) : bounded_duration(otherwise);
}

}  // namespace rondo
