#include "rondo/backend/context.h"

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "rondo/backend/card_engine.h"
#include "rondo/backend/engine/engine_text.h"
#include "rondo/backend/engine/nccl_module.h"
#include "rondo/backend/engine/store_adapter.h"
#include "rondo/backend/group.h"
#include "rondo/backend/registry.h"
#include "rondo/backend/rendezvous.h"
#include "rondo/base/error.h"
#include "rondo/base/log.h"
#include "rondo/base/process.h"
#include "rondo/base/replica.h"
#include "rondo/base/text.h"
#include "rondo/device/cards.h"
#include "rondo/device/device_choice.h"
#include "rondo/device/devices.h"
#include "rondo/env/address.h"
#include "rondo/env/device_name.h"
#include "rondo/env/environment.h"
#include "rondo/env/identity.h"
#include "rondo/env/roles.h"
#include "rondo/kernels/matmul_choice.h"
#include "rondo/launch/network.h"
#include "rondo/memory/tracker.h"

namespace rondo {

struct Group::State {
  std::string name;
  std::vector<int> ranks;
  int rank;
  Communicator communicator;
  c10::intrusive_ptr<c10d::Store> store;
  // Cached, because a dynamic_cast takes a tenth of a small all_reduce's time.
  ExtendedBackend* engine = rondo::extended(communicator.backend);
};

Group::Group(std::string name, std::vector<int> ranks, int rank, Communicator communicator,
             c10::intrusive_ptr<c10d::Store> store)
    : state_(std::make_shared<State>(
          State{std::move(name), std::move(ranks), rank, std::move(communicator), std::move(store)})) {}

// NOLINTNEXTLINE(performance-unnecessary-value-param): it is looked at after it has been copied
Group::Group(std::string name, std::vector<int> ranks, int rank, c10::intrusive_ptr<c10d::Backend> backend,
             c10::intrusive_ptr<c10d::Store> store)
    : Group(std::move(name), std::move(ranks), rank, Communicator{backend, traits_of(backend)},
            std::move(store)) {}

namespace {

template <class State>
const State& checked(const std::shared_ptr<const State>& state) {
  if (state == nullptr)
    throw UsageError("this group handle is empty: no Context returned it, or its Context was shut down");
  return *state;
}

template <class State>
const Communicator& communicator_of(const std::shared_ptr<const State>& state) {
  if (!checked(state).communicator.backend)
    throw UsageError("this rank is not a member of group '" + state->name + "'");
  return state->communicator;
}

}  // namespace

int Group::rank() const { return state_ == nullptr ? -1 : state_->rank; }
int Group::size() const { return static_cast<int>(checked(state_).ranks.size()); }
const std::vector<int>& Group::ranks() const { return checked(state_).ranks; }
const std::string& Group::name() const { return checked(state_).name; }

const c10::intrusive_ptr<c10d::Backend>& Group::backend() const { return communicator_of(state_).backend; }
ExtendedBackend* Group::extended() const { return checked(state_).engine; }
const EngineTraits& Group::traits() const { return communicator_of(state_).traits; }

const c10::intrusive_ptr<c10d::Store>& Group::store() const { return checked(state_).store; }

namespace {

// Prefix of an init_method for a world whose rank and size come from the options alone. The environment is
// ignored.
constexpr std::string_view kApart = "apart:";

// The hosts of all ranks.
struct Places {
  std::vector<Member> members;  // members by rank; empty: all ranks are on this host
  int local_rank = 0;
  int local_world_size = 1;

  bool one_host() const {
    return std::all_of(members.begin(), members.end(),
                       [&](const Member& member) { return member.host == members.front().host; });
  }
};

// Returns whether this world is the launcher's own. In another world of this launcher, groups may have the
// same names, and their keys would collide in the launcher's store.
bool meets_as_the_environment_says(const InitOptions& options) {
  return !options.store && !options.init_method.starts_with(kApart) &&
         env::parse_init_method(options.init_method).kind == env::InitMethod::Kind::environment;
}

Places find_places(const env::Identity& identity, const InitOptions& options,
                   const c10::intrusive_ptr<c10d::Store>& store) {
  Places places;
  places.local_rank = identity.local_rank.value_or(identity.rank);
  places.local_world_size = identity.local_world_size.value_or(identity.world_size);
  // A launcher that started the whole world on this host has given all that is needed.
  const bool told = identity.local_rank && identity.local_world_size == identity.world_size;
  const std::string host = options.host.empty()
                               ? env::lookup(env::process_environment(), kHostVariable).value_or("")
                               : options.host;
  if (identity.world_size == 1 || (told && host.empty())) return places;
  Member own = this_member(identity, host);
  if (!meets_as_the_environment_says(options)) own.launcher_store.clear();
  places.members = exchange_members(identity, own, store, join_timeout(options.timeout));
  const auto with_me = [&](const Member& member) { return member.host == own.host; };
  const auto begin = places.members.begin();
  places.local_rank =
      identity.local_rank.value_or(static_cast<int>(std::count_if(begin, begin + identity.rank, with_me)));
  places.local_world_size = identity.local_world_size.value_or(
      static_cast<int>(std::count_if(begin, places.members.end(), with_me)));
  return places;
}

// Adds the hosts of the group's members to the request of a backend factory. The members are `ranks` of the
// context. Keys of the group in the launcher's store begin with `path`.
void describe_places(BackendRequest& request, const std::vector<int>& ranks, const Places& places,
                     const std::string& path) {
  if (places.members.empty()) return;
  const auto member = [&](int rank) -> const Member& {
    return places.members[static_cast<std::size_t>(rank)];
  };
  for (const int rank : ranks) {
    request.hosts.push_back(member(rank).host);
    request.host_names.push_back(member(rank).host_name);
  }
  const Member& own = member(ranks[static_cast<std::size_t>(request.rank)]);
  const bool one_launcher = std::all_of(ranks.begin(), ranks.end(), [&](int rank) {
    return member(rank).host != own.host || member(rank).launcher_store == own.launcher_store;
  });
  if (own.launcher_store.empty() || !one_launcher) return;
  if (const auto store = launcher_store())
    request.host_store = c10::make_intrusive<c10d::PrefixStore>(path + request.group_name, store);
}

env::Overrides overrides_of(const InitOptions& options, const std::string& init_method) {
  env::Overrides overrides;
  overrides.rank = options.rank;
  overrides.world_size = options.world_size;
  overrides.local_rank = options.local_rank;
  overrides.init_method = options.store ? "file:///unused" : init_method;
  return overrides;
}

// Returns the identity of a process in a world of its own, or in a world that the options alone describe.
env::Identity identity_apart(env::Overrides overrides) {
  overrides.host = host_name();
  return env::discover({}, overrides);
}

}  // namespace

struct Context::State {
  std::shared_ptr<Replica>
      replica;  // declared first, so that the members below are released under its replica number
  env::Identity identity;
  std::vector<int> job_ranks;  // world ranks of this context's ranks in the context that init() created
  Places places;
  std::string local_address;
  c10::Device device = c10::kCPU;
  bool names_device = false;  // InitOptions::device contains an index
  RankOfHost place_of_host;   // among the ranks of the job, as found by init()
  std::string backend_name;
  c10::intrusive_ptr<c10d::Store> store;
  c10::intrusive_ptr<c10d::Store> job_store;  // local rank of the context that init() created
  std::shared_ptr<JobObjects> job_objects = std::make_shared<JobObjects>();
  std::string path;  // prefix in the job's stores: contexts number their groups alike
  Duration timeout{};
  std::int64_t epoch = 0;
  bool deterministic = false;
  Group world;
  Mesh mesh;
  std::map<std::string, Group> dimensions;  // by name; for a mesh with several dimensions
  std::vector<Group> groups;                // all groups made so far; a group's name contains its index
  std::map<std::string, int> within;        // number of contexts made from a group so far, by its name
};

namespace {

// Sets the device of this process and returns the cards of all ranks. Collective.
template <class State>
std::vector<RankCard> choose_device_of(State& state, const InitOptions& options) {
  const env::Identity& identity = state.identity;
  DeviceRequest request{.name = options.device,
                        .visible = {},
                        .host = host_name(),
                        .local_rank = state.places.local_rank,
                        .local_world_size = state.places.local_world_size,
                        .rank = identity.rank,
                        .world_size = identity.world_size,
                        .card_of = card_of};
  const DeviceName name = parse_device_name(options.device, "--device");
  if (name.kind == "auto" || name.kind == "cuda") request.visible = visible_devices();
  StoreFromC10d store(state.store);
  DeviceChoice choice = agree_on_device(request, store, join_timeout(options.timeout));
  state.device = choice.device;
  state.names_device = name.index.has_value();
  state.place_of_host = {state.places.local_rank, state.places.local_world_size};
  set_current_device(choice.device);
  return std::move(choice.cards);
}

// Returns the store in which the ranks of this context, and no others, meet.
template <class State>
c10::intrusive_ptr<c10d::Store> meet_others(State& state, const InitOptions& options,
                                            const std::string& method) {
  const env::Identity& identity = state.identity;
  c10::intrusive_ptr<c10d::Store> store = options.store;
  if (!store && options.init_method == "alone") {
    store = c10::make_intrusive<c10d::HashStore>();
  } else if (!store) {
    const Duration limit = join_timeout(options.timeout);
    if (!options.init_method.starts_with(kApart)) announce_patience(identity, std::max(limit, state.timeout));
    store = meet(identity, method, limit);
  }
  const auto part = [&](const std::string& name) {
    store = c10::make_intrusive<c10d::PrefixStore>(name, store);
  };
  // A restarted job may meet in a store that still has the last attempt's keys.
  if (identity.restart_count > 0) part(str("attempt/", identity.restart_count));
  state.epoch = options.epoch;
  if (options.epoch > 0) {
    state.path = str("epoch/", options.epoch, "/");
    part(str("epoch/", options.epoch));
  }
  return store;
}

// Makes all ranks agree on the order of additions, the devices and the engine. Collective.
template <class State>
void choose_engine_of(State& state, const InitOptions& options) {
  const env::Identity& identity = state.identity;
  StoreFromC10d store(state.store);
  state.deterministic =
      agree_on_deterministic(options.deterministic ? *options.deterministic : deterministic_by_environment(),
                             identity.rank, identity.world_size, store, join_timeout(options.timeout));
  const std::vector<RankCard> cards = choose_device_of(state, options);
  state.backend_name = options.backend;
  if (options.backend == "auto") {
    // NCCL does not add in the order of ranks.
    const bool over_nccl =
        state.device.is_cuda() && !state.deterministic && have_own_cards(cards) && have_nccl();
    state.backend_name = over_nccl ? "nccl" : engine_of_auto(state.places.one_host());
  }
  check_cards(state.backend_name, cards);
  if (const std::string shared = shared_cards(cards); !shared.empty() && identity.rank == 0)
    log::warning(shared, "; they compute in turns");
}

// Runs `join`, which returns once all ranks have joined. Reports to this rank's launcher that the rank is
// joining, and adds the launcher's reason to the error if rank 0 is lost.
template <class Join>
auto noted_joining(const env::Identity& identity, bool by_environment, Join join) {
  announce_joining(identity, by_environment);
  try {
    auto joined = join();
    announce_joining(identity, false);
    return joined;
  } catch (const JobOverError& over) {
    relay_end_notice(identity, over.what());
    throw;
  } catch (const PeerLostError& lost) {
    const auto notice = by_environment ? launchers_notice(identity) : std::nullopt;
    if (!notice) throw;
    relay_end_notice(identity, *notice);
    throw JobOverError(str(lost.what(), " Its launcher reports: ", *notice), lost.ranks());
  }
}

}  // namespace

Context init(const InitOptions& options) {
  if (options.store && (!options.rank || !options.world_size)) {
    throw UsageError(
        "InitOptions.store is given, so InitOptions.rank and InitOptions.world_size must be too");
  }
  auto state = std::make_shared<Context::State>();
  const bool alone = options.init_method == "alone";
  const bool apart = options.init_method.starts_with(kApart);
  const std::string method = apart ? options.init_method.substr(kApart.size()) : options.init_method;
  state->identity = alone   ? identity_apart({})
                    : apart ? identity_apart(overrides_of(options, method))
                            : env::discover_process(overrides_of(options, method));
  state->timeout = bounded_duration(options.timeout);
  const env::Identity& identity = state->identity;
  env::require_served_role(identity);
  state->replica = std::make_shared<Replica>();
  begin_replica_tracker(state->replica->number());
  state->replica->enter();
  log::set_prefix(identity.world_size > 1 ? str("rank ", identity.rank) : std::string());
  const MatmulChoice& matmul = matmul_choice();
  log::info("matrix products: ", matmul.fast ? "fast" : "default", " kernels (", matmul.why, ")");
  const bool by_environment = !alone && !apart && meets_as_the_environment_says(options);
  return noted_joining(identity, by_environment, [&] {
    state->store = meet_others(*state, options, method);
    state->job_store = state->store;
    RankClaim claim(identity, state->store, options.epoch);
    state->places = find_places(identity, options, state->store);
    if (!state->places.one_host()) state->local_address = launch::local_address_towards(identity.master_addr);
    choose_engine_of(*state, options);

    std::vector<int> everyone(static_cast<std::size_t>(identity.world_size));
    std::iota(everyone.begin(), everyone.end(), 0);
    Context context(state);
    state->job_ranks = everyone;
    state->world = context.new_group(everyone);
    check_device_tensors(state->backend_name, state->world.traits(), state->device);
    state->mesh = {{"data", identity.world_size}};
    claim.keep();
    // Restores the timeout of collectives: joining may have used another one. A store of the caller keeps its
    // timeout.
    if (!options.store)
      state->store->setTimeout(std::chrono::ceil<std::chrono::milliseconds>(state->timeout));
    return context;
  });
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
bool Context::deterministic() const { return checked(state_).deterministic; }
const std::string& Context::role() const { return checked(state_).identity.role; }
Duration Context::timeout() const { return checked(state_).timeout; }
std::int64_t Context::epoch() const { return checked(state_).epoch; }
const Mesh& Context::mesh() const { return checked(state_).mesh; }
const Group& Context::world() const { return checked(state_).world; }
c10::Device Context::device() const { return checked(state_).device; }
std::vector<c10::Device> Context::devices(c10::Device first, int count) const {
  const State& state = checked(state_);
  RankOfHost place = state.place_of_host;
  place.devices = device_count(first.type());
  if (state.names_device && first == state.device) place.ranks = 1;
  return devices_of_replicas(first, place, count);
}
void Context::enter() const {
  const State& state = checked(state_);
  state.replica->enter();
  set_current_device(state.device);
}

const Group& Context::group(const std::string& dimension) const {
  const auto& groups = checked(state_).dimensions;
  if (const auto found = groups.find(dimension); found != groups.end()) return found->second;
  std::vector<std::string> names;
  for (const MeshDimension& known : mesh()) {
    if (known.name == dimension) return world();  // the world is the group of the only dimension
    names.push_back(known.name);
  }
  throw UsageError(str("the mesh has no dimension '", dimension, "'; it has ", join(names, ", ")));
}

Context Context::mesh(const Mesh& dimensions) const {
  const Mesh ordered = ordered_mesh(dimensions, world_size());
  Context result = within(world());
  State& state = checked(result.state_);
  state.mesh = ordered;
  for (const MeshDimension& dimension : ordered) {
    state.dimensions[dimension.name] =
        dimension.size == world_size() ? state.world : result.new_group_along({dimension.name});
  }
  return result;
}

Group Context::new_group_along(const std::vector<std::string>& dimensions) const {
  Group own;
  for (const std::vector<int>& ranks : ranks_along(mesh(), dimensions)) {
    const Group group = new_group(ranks);
    if (group.member()) own = group;
  }
  return own;
}

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
  for (const int member : ranks)
    request.world_ranks.push_back(state.job_ranks[static_cast<std::size_t>(member)]);
  request.store = store;
  request.job_store = state.job_store;
  request.job_objects = state.job_objects;
  request.timeout = state.timeout;
  request.local_address = state.local_address;
  request.deterministic = state.deterministic;
  describe_places(request, ranks, state.places, state.path);
  state.groups.emplace_back(name, ranks, request.rank, make_communicator(state.backend_name, request), store);
  return state.groups.back();
}

Context Context::within(const Group& group) const {
  State& state = checked(state_);
  if (!group.member())
    throw UsageError(str("Context::within: rank ", rank(), " is not a member of group '", group.name(), "'"));
  auto part = std::make_shared<State>(state);
  part->identity.rank = group.rank();
  part->identity.world_size = group.size();
  part->job_ranks.clear();
  for (const int member : group.ranks())
    part->job_ranks.push_back(state.job_ranks[static_cast<std::size_t>(member)]);
  part->places.local_world_size = group.size();
  part->places.members.clear();
  if (!state.places.members.empty()) {
    const auto& all = state.places.members;
    const std::string& own = all[static_cast<std::size_t>(rank())].host;
    for (const int member : group.ranks())
      part->places.members.push_back(all[static_cast<std::size_t>(member)]);
    part->places.local_world_size =
        static_cast<int>(std::count_if(part->places.members.begin(), part->places.members.end(),
                                       [&](const Member& member) { return member.host == own; }));
  }
  const std::string name = str("context ", state.within[group.name()]++);
  part->path = str(state.path, group.name(), "/", name, "/");
  part->store = c10::make_intrusive<c10d::PrefixStore>(name, group.store());
  std::vector<int> everyone(static_cast<std::size_t>(group.size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  part->world = Group(group.name(), everyone, group.rank(), Communicator{group.backend(), group.traits()},
                      c10::make_intrusive<c10d::PrefixStore>("world", part->store));
  part->groups = {part->world};
  part->within.clear();
  part->mesh = {{"data", group.size()}};
  part->dimensions.clear();
  return Context(std::move(part));
}

void Context::shutdown() {
  State& state = checked(state_);
  if (state.groups.empty()) return;
  state.world.backend()->barrier()->wait();
  for (const Group& group : state.groups) {
    if (!group.member()) continue;
    if (ExtendedBackend* const engine = group.extended()) {
      engine->close();
    } else {
      group.backend()->shutdown();
    }
  }
  state.groups.clear();
  state.world = Group();
}

}  // namespace rondo
