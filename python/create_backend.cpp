#include "python/create_backend.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <mutex>

#include "rondo/backend/engine/engine_text.h"
#include "rondo/backend/engine/traits.h"
#include "rondo/backend/registry.h"
#include "rondo/backend/rendezvous.h"
#include "rondo/base/process.h"
#include "rondo/env/environment.h"
#include "rondo/launch/network.h"

namespace rondo::plugin {
namespace {

using BackendPointer = c10::intrusive_ptr<c10d::Backend>;
using StorePointer = c10::intrusive_ptr<c10d::Store>;

// The groups that close_groups() closes. Never destroyed: groups may be made until the process ends.
struct Groups {
  std::mutex mutex;  // protects backends
  std::vector<c10::weak_intrusive_ptr<c10d::Backend>> backends;
};

Groups& groups() {
  static auto* const all = new Groups;
  return *all;
}

void remember(const BackendPointer& backend) {
  if (!traits_of(backend).progresses_in_background) return;
  const std::lock_guard lock(groups().mutex);
  auto& backends = groups().backends;
  std::erase_if(backends, [](const auto& known) { return known.expired(); });
  backends.emplace_back(backend);
}

// Returns the address at which ranks reach the process that holds the store; empty if the store has no
// address.
std::string host_of_store(StorePointer store) {
  if (auto* const prefix = dynamic_cast<c10d::PrefixStore*>(store.get()))
    store = prefix->getUnderlyingNonPrefixStore();
  if (const auto* const tcp = dynamic_cast<c10d::TCPStore*>(store.get())) return tcp->getHost();
  return env::lookup(env::process_environment(), "MASTER_ADDR").value_or("");
}

// Fills the request's hosts from the announcements of all members.
void find_hosts(BackendRequest& request) {
  if (request.size == 1) return;
  env::Identity identity;
  identity.rank = request.rank;
  identity.world_size = request.size;
  identity.host = host_name();
  const std::string told = env::lookup(env::process_environment(), kHostVariable).value_or("");
  const StorePointer places = c10::make_intrusive<c10d::PrefixStore>("places", request.store);
  for (const Member& member :
       exchange_members(identity, this_member(identity, told), places, request.timeout)) {
    request.hosts.push_back(member.host);
    request.host_names.push_back(member.host_name);
  }
  if (request.one_host()) return;
  if (const std::string host = host_of_store(request.store); !host.empty())
    request.local_address = launch::local_address_towards(host);
}

}  // namespace

BackendPointer create_backend(const StorePointer& store, int rank, int size,
                              const std::vector<int>& world_ranks, const std::string& group_name,
                              std::chrono::milliseconds timeout) {
  BackendRequest request{.group_name = group_name,
                         .rank = rank,
                         .size = size,
                         .world_ranks = world_ranks,
                         .store = store,
                         .timeout = bounded_duration(timeout),
                         .deterministic = deterministic_by_environment()};
  find_hosts(request);
  BackendPointer backend = make_backend(engine_of_auto(request.one_host()), request);
  remember(backend);
  return backend;
}

void close_groups() {
  std::vector<c10::weak_intrusive_ptr<c10d::Backend>> backends;
  {
    const std::lock_guard lock(groups().mutex);
    backends.swap(groups().backends);
  }
  for (const auto& known : backends) {
    if (const BackendPointer backend = known.lock()) extended(backend)->close();
  }
}

}  // namespace rondo::plugin
