#include "rondo/backend/rendezvous.h"

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "rondo/backend/engine/store_adapter.h"
#include "rondo/backend/network.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/channel/shared_store.h"
#include "rondo/env/environment.h"
#include "rondo/env/init_method.h"
#include "rondo/launch/worker_environment.h"

namespace rondo {
namespace {

c10::intrusive_ptr<c10d::Store> tcp_store(const env::Identity& identity, const std::string& host, int port,
                                          Duration timeout) {
  const auto environment = env::process_environment();
  const auto agent = env::lookup(environment, "TORCHELASTIC_USE_AGENT_STORE");
  const bool agent_listens = agent && *agent == "True";
  const bool listens = identity.rank == 0 && !agent_listens;
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(port);
  options.isServer = listens;
  options.waitWorkers = false;
  options.timeout = std::chrono::duration_cast<std::chrono::milliseconds>(timeout);
  // Several contexts of one process may meet at one address, one after the other or as threads.
  options.multiTenant = true;
  std::string connect_to = host;
  if (listens) {
    const Listener listener =
        listen_at(host, port, env::lookup(environment, "GLOO_SOCKET_IFNAME").value_or(""));
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
  if (!listens) {
    if (const std::string reason = wait_for_listener(host, port, timeout); !reason.empty())
      throw TimeoutError(failed(str(reason, " (tried for ", to_string(timeout), ")")), {0});
  }
  try {
    return c10::make_intrusive<c10d::TCPStore>(connect_to, options);
  } catch (const std::exception& e) {
    throw Error(failed(std::string(split(e.what(), '\n').front())));
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
    return tcp_store(identity, method.host, method.port, timeout);
  if (identity.world_size == 1) return c10::make_intrusive<c10d::HashStore>();
  // A launcher's store reaches the ranks that it started, which on several hosts are not all.
  if (identity.local_world_size == identity.world_size) {
    if (const auto store = launcher_store()) return store;
  }
  return tcp_store(identity, identity.master_addr, identity.master_port, timeout);
}

c10::intrusive_ptr<c10d::Store> launcher_store() {
  const auto descriptor = env::lookup(env::process_environment(), kStoreDescriptorVariable);
  if (!descriptor) return {};
  const auto number = static_cast<int>(parse_integer(*descriptor, kStoreDescriptorVariable));
  return c10::make_intrusive<StoreForC10d>(SharedStore::open(number));
}

Duration join_timeout(Duration otherwise) {
  const auto text = env::lookup(env::process_environment(), launch::kJoinTimeoutVariable);
  return text ? parse_duration(*text, launch::kJoinTimeoutVariable) : otherwise;
}

}  // namespace rondo
