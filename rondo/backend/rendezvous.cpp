#include "rondo/backend/rendezvous.h"

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "rondo/backend/store_adapter.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/channel/shared_store.h"
#include "rondo/env/environment.h"
#include "rondo/env/init_method.h"

namespace rondo {
namespace {

c10::intrusive_ptr<c10d::Store> tcp_store(const env::Identity& identity, const std::string& host, int port,
                                          Duration timeout) {
  const auto environment = env::process_environment();
  const auto agent = env::lookup(environment, "TORCHELASTIC_USE_AGENT_STORE");
  const bool agent_listens = agent && *agent == "True";
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(port);
  options.isServer = identity.rank == 0 && !agent_listens;
  options.waitWorkers = false;
  options.timeout = std::chrono::duration_cast<std::chrono::milliseconds>(timeout);
  // Several contexts of one process may meet at one address, one after the other or as threads.
  options.multiTenant = true;
  try {
    return c10::make_intrusive<c10d::TCPStore>(host, options);
  } catch (const std::exception& e) {
    const std::string reason(split(e.what(), '\n').front());
    throw Error(str("rank ", identity.rank,
                    options.isServer ? " cannot listen at " : " cannot reach rank 0 at ", host, ":", port,
                    ": ", reason, ". The address comes from ", identity.origin(env::Field::master_addr),
                    " and ", identity.origin(env::Field::master_port),
                    "; is another job using the port, or rank 0 not running?"));
  }
}

}  // namespace

c10::intrusive_ptr<c10d::Store> launcher_store() {
  const auto descriptor = env::lookup(env::process_environment(), kStoreDescriptorVariable);
  if (!descriptor) return nullptr;
  const auto number = static_cast<int>(parse_integer(*descriptor, kStoreDescriptorVariable));
  return c10::make_intrusive<StoreForC10d>(SharedStore::open(number));
}

c10::intrusive_ptr<c10d::Store> meet(const env::Identity& identity, const std::string& init_method,
                                     Duration timeout) {
  const env::InitMethod method = env::parse_init_method(init_method);
  if (method.kind == env::InitMethod::Kind::file) {
    return c10::make_intrusive<c10d::FileStore>(method.path, identity.world_size);
  }
  if (method.kind == env::InitMethod::Kind::tcp)
    return tcp_store(identity, method.host, method.port, timeout);
  if (identity.world_size == 1) return c10::make_intrusive<c10d::HashStore>();
  if (auto store = launcher_store()) return store;
  return tcp_store(identity, identity.master_addr, identity.master_port, timeout);
}

}  // namespace rondo
