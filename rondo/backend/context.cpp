#include "rondo/backend/context.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <numeric>
#include <set>

#include "rondo/backend/hierarchical/hierarchical_backend.h"
#include "rondo/backend/membership.h"
#include "rondo/backend/native/native_backend.h"
#include "rondo/backend/network.h"
#include "rondo/backend/registry.h"
#include "rondo/backend/rendezvous.h"
#include "rondo/backend/reproducible.h"
#include "rondo/backend/store_adapter.h"
#include "rondo/base/error.h"
#include "rondo/base/log.h"
#include "rondo/base/text.h"
#include "rondo/env/environment.h"
#include "rondo/env/identity.h"
#include "rondo/kernels/matmul_choice.h"

namespace rondo {

namespace {

// Who runs where, by rank.
struct Places {
  std::vector<Member> members;  // empty: all on this host
  int local_rank = 0;
  int local_world_size = 1;

  bool one_host() const {
    return std::all_of(members.begin(), members.end(),
                       [&](const Member& member) { return member.host == members.front().host; });
  }
};

Places find_places(const env::Identity& identity, const InitOptions& options,
                   const c10::intrusive_ptr<c10d::Store>& store) {
  Places places;
  places.local_rank = identity.local_rank.value_or(identity.rank);
  places.local_world_size = identity.local_world_size.value_or(identity.world_size);
  // A launcher that started the whole world on this host leaves nothing to find out.
  const bool told = identity.local_rank && identity.local_world_size == identity.world_size;
  const std::string host = options.host.empty()
                               ? env::lookup(env::process_environment(), kHostVariable).value_or("")
                               : options.host;
  if (identity.world_size == 1 || (told && host.empty())) return places;
  const Member own = this_member(identity, host);
  places.members = exchange_members(identity, own, store, join_timeout(options.timeout));
  const auto with_me = [&](const Member& member) { return member.host == own.host; };
  const auto begin = places.members.begin();
  places.local_rank =
      identity.local_rank.value_or(static_cast<int>(std::count_if(begin, begin + identity.rank, with_me)));
  places.local_world_size = identity.local_world_size.value_or(
      static_cast<int>(std::count_if(begin, places.members.end(), with_me)));
  return places;
}

// Tells a backend factory where the members of its group are.
void describe_places(BackendRequest& request, const Places& places) {
  if (places.members.empty()) return;
  const auto member = [&](int rank) -> const Member& {
    return places.members[static_cast<std::size_t>(rank)];
  };
  for (const int rank : request.world_ranks) {
    request.hosts.push_back(member(rank).host);
    request.host_names.push_back(member(rank).host_name);
  }
  const Member& own = member(request.world_ranks[static_cast<std::size_t>(request.rank)]);
  const bool one_launcher =
      std::all_of(request.world_ranks.begin(), request.world_ranks.end(), [&](int rank) {
        return member(rank).host != own.host || member(rank).launcher_store == own.launcher_store;
      });
  if (own.launcher_store.empty() || !one_launcher) return;
  if (const auto store = launcher_store())
    request.host_store = c10::make_intrusive<c10d::PrefixStore>(request.group_name, store);
}

env::Overrides overrides_of(const InitOptions& options) {
  env::Overrides overrides;
  overrides.rank = options.rank;
  overrides.world_size = options.world_size;
  overrides.local_rank = options.local_rank;
  overrides.init_method = options.store ? "file:///unused" : options.init_method;
  return overrides;
}

}  // namespace

struct Context::State {
  env::Identity identity;
  Places places;
  std::string local_address;
  std::string backend_name;
  c10::intrusive_ptr<c10d::Store> store;
  Duration timeout{};
  bool reproducible = false;
  Group world;
  std::vector<Group> groups;  // all made so far; a group is named by its number
};

Context init(const InitOptions& options) {
  if (options.store && (!options.rank || !options.world_size)) {
    throw UsageError(
        "InitOptions.store is given, so InitOptions.rank and InitOptions.world_size must be too");
  }
  auto state = std::make_shared<Context::State>();
  state->identity = env::discover_process(overrides_of(options));
  state->timeout = options.timeout;
  const env::Identity& identity = state->identity;
  if (identity.world_size > 1) log::set_prefix(str("rank ", identity.rank));
  const MatmulChoice& matmul = matmul_choice();
  log::info("matrix products: ", matmul.fast ? "fast" : "default", " kernels (", matmul.why, ")");
  state->store =
      options.store ? options.store : meet(identity, options.init_method, join_timeout(options.timeout));
  // A restarted job may meet in a store that remembers the last attempt.
  if (identity.restart_count > 0) {
    state->store =
        c10::make_intrusive<c10d::PrefixStore>(str("attempt/", identity.restart_count), state->store);
  }
  state->places = find_places(identity, options, state->store);
  const bool one_host = state->places.one_host();
  if (!one_host) state->local_address = local_address_towards(identity.master_addr);
  state->backend_name =
      options.backend == "auto" ? (one_host ? "native" : "hierarchical(native, gloo)") : options.backend;

  StoreFromC10d store(state->store);
  state->reproducible =
      agree_on_reproducible(options.reproducible ? *options.reproducible : reproducible_by_environment(),
                            identity.rank, identity.world_size, store, join_timeout(options.timeout));

  std::vector<int> everyone(static_cast<std::size_t>(identity.world_size));
  std::iota(everyone.begin(), everyone.end(), 0);
  Context context(state);
  state->world = context.new_group(everyone);
  return context;
}

namespace {

template <class State>
State& checked(const std::shared_ptr<State>& state) {
  if (state == nullptr) throw UsageError("this Context is empty; it comes from rondo::init()");
  return *state;
}

}  // namespace

int Context::rank() const { return checked(state_).identity.rank; }
int Context::world_size() const { return checked(state_).identity.world_size; }
int Context::local_rank() const { return checked(state_).places.local_rank; }
int Context::local_world_size() const { return checked(state_).places.local_world_size; }
const std::string& Context::host() const { return checked(state_).identity.host; }
const std::string& Context::backend_name() const { return checked(state_).backend_name; }
bool Context::reproducible() const { return checked(state_).reproducible; }
const Group& Context::world() const { return checked(state_).world; }

Group Context::new_group(const std::vector<int>& ranks) const {
  State& state = checked(state_);
  if (ranks.empty()) throw UsageError("new_group: the list of ranks is empty");
  for (const int rank : ranks) {
    if (rank < 0 || rank >= world_size()) {
      throw UsageError(str("new_group: ", rank, " is not a rank of this world of ", world_size()));
    }
  }
  if (std::set<int>(ranks.begin(), ranks.end()).size() != ranks.size()) {
    throw UsageError(str("new_group: a rank appears twice in {", join(ranks, ", "), "}"));
  }
  const std::string name = state.groups.empty() ? "world" : str("group ", state.groups.size());
  const auto store = c10::make_intrusive<c10d::PrefixStore>(name, state.store);
  const auto found = std::find(ranks.begin(), ranks.end(), rank());
  if (found == ranks.end()) {
    state.groups.emplace_back(name, ranks, -1, nullptr, store);
    return state.groups.back();
  }
  BackendRequest request;
  request.group_name = name;
  request.rank = static_cast<int>(found - ranks.begin());
  request.size = static_cast<int>(ranks.size());
  request.world_ranks = ranks;
  request.store = store;
  request.timeout = state.timeout;
  request.local_address = state.local_address;
  request.reproducible = state.reproducible;
  describe_places(request, state.places);
  state.groups.emplace_back(name, ranks, request.rank, make_backend(state.backend_name, request), store);
  return state.groups.back();
}

void Context::shutdown() {
  State& state = checked(state_);
  if (state.groups.empty()) return;
  state.world.backend()->barrier()->wait();
  for (const Group& group : state.groups) {
    if (!group.member()) continue;
    if (auto* native = dynamic_cast<NativeBackend*>(group.backend().get())) native->close();
    if (auto* several = dynamic_cast<HierarchicalBackend*>(group.backend().get())) several->close();
  }
  state.groups.clear();
  state.world = Group();
}

}  // namespace rondo
