// HierarchicalBackend's codec memory as named tensors: "about" (text), then for each buffer "3/elements",
// "3/residual" and "3/sum_residual", where the codec keeps them.
#include "rondo/backend/hierarchical/hierarchical_backend.h"

#include <ATen/ops/zeros.h>

#include <torch/types.h>
#include <cstring>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "rondo/backend/engine/store_adapter.h"
#include "rondo/backend/hierarchical/transfers.h"
#include "rondo/backend/memory/registered_memory.h"
#include "rondo/base/bytes.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/collective/forked_child.h"
#include "rondo/collective/shared_memory/engine.h"

namespace rondo {
namespace {

using c10d::OpType;
using namespace hierarchical;

// Smaller tensors are losses and counters, which stay exact; encoding them saves nothing.
constexpr std::size_t kLeastCompressed = std::size_t{64} << 10;

// Returns the map of ranks to hosts; each rank is a separate host if the options request it.
HostMap map_of(const BackendRequest& request, const HierarchicalBackend::Options& options) {
  std::vector<std::string> hosts = request.hosts;
  if (options.one_rank_a_host) {
    hosts.clear();
    for (int rank = 0; rank < request.size; ++rank) hosts.push_back(std::to_string(rank));
  }
  return {hosts, request.rank};
}

// Returns whether the result depends on the order of the additions. The minimum of zeros and of NaNs does
// too.
bool depends_on_order(const CollectiveRequest& request) { return is_floating(request.type); }

std::vector<std::string> names_of(const BackendRequest& request, const HostMap& map, bool with_hosts) {
  std::vector<std::string> names;
  for (int rank = 0; rank < request.size; ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    const int world = request.world_ranks.empty() ? rank : request.world_ranks[at];
    std::string name = str("rank ", rank);
    if (world != rank) name += str(" (world rank ", world, ")");
    if (with_hosts) name += str(" on host ", map.host_of(rank));
    if (at < request.host_names.size()) name += str(" (", request.host_names[at], ")");
    names.push_back(std::move(name));
  }
  return names;
}

// Makes an engine among this host's members; null if this rank is alone there.
std::unique_ptr<HostGroup> make_host_group(const BackendRequest& request, const HostMap& map,
                                           const char* part, Duration patience) {
  if (map.host_size() == 1) return nullptr;
  const std::vector<int>& members = map.members(map.host());
  shared_memory::GroupOptions options;
  options.group_name = str(request.group_name, " host ", map.host());
  options.rank = map.local_rank();
  options.size = map.host_size();
  for (const int member : members)
    options.world_ranks.push_back(
        request.world_ranks.empty() ? member : request.world_ranks[static_cast<std::size_t>(member)]);
  options.timeout = request.timeout;
  StoreFromC10d store(c10::make_intrusive<c10d::PrefixStore>(
      str("hierarchical/", part, "/", map.host()), request.host_store ? request.host_store : request.store));
  return std::make_unique<HostGroup>(std::make_shared<shared_memory::Engine>(store, options, process_arena()),
                                     members, patience);
}

std::unique_ptr<Transports> make_transports(const BackendRequest& request,
                                            const HierarchicalBackend::Options& options) {
  register_cpu_allocations();
  HostMap map = map_of(request, options);
  auto intra_host_reduce = make_host_group(request, map, "intra-host reduce", kIntraHostReduceGrace);
  auto intra_host_broadcast = make_host_group(request, map, "intra-host broadcast", kIntraHostBroadcastGrace);
  BackendRequest outer = request;
  outer.store = c10::make_intrusive<c10d::PrefixStore>("hierarchical/between hosts", request.store);
  outer.deterministic = false;  // only messages
  auto link = std::make_unique<OuterLink>(request.make(options.outer, outer),
                                          names_of(request, map, !options.one_rank_a_host), kDataGrace);
  std::vector<int> peers;
  for (int rank = 0; rank < request.size; ++rank) {
    // Sums in the order of ranks need messages between all ranks of different hosts.
    if (request.deterministic ? map.host_of(rank) != map.host() : map.communicates_with(rank))
      peers.push_back(rank);
  }
  return std::make_unique<Transports>(Transports{std::move(map), std::move(peers),
                                                 std::move(intra_host_reduce),
                                                 std::move(intra_host_broadcast), std::move(link)});
}

// A collective of the pipeline. A wait that times out ends the group, as with the engine within a host, so
// that peers do not keep waiting for an operation that this rank has abandoned.
class ExecutorWork final : public BackgroundWork {
 public:
  ExecutorWork(int rank, c10d::OpType type, std::shared_ptr<const OperationMemory> memory, std::string what,
               const std::shared_ptr<TwoStageExecutor>& executor)
      : BackgroundWork(rank, type, std::move(memory)), what_(std::move(what)), executor_(executor) {}

  bool wait(std::chrono::milliseconds timeout) override {
    try {
      return BackgroundWork::wait(timeout);
    } catch (const std::exception&) {
      if (isCompleted()) throw;
    }
    const auto error = std::make_exception_ptr(TimeoutError(
        str(what_, " did not end within the ", to_string(bounded_duration(timeout)), " of its wait()"), {}));
    if (const auto executor = executor_.lock()) executor->abort(error);
    BackgroundWork::wait(kNoTimeout);
    return true;
  }

 private:
  const std::string what_;
  const std::weak_ptr<TwoStageExecutor> executor_;
};

}  // namespace

HierarchicalBackend::HierarchicalBackend(const BackendRequest& request, const Options& options)
    : RequestBackend(request),
      request_(request),
      options_(options),
      deterministic_(request.deterministic),
      compression_(options.codec),
      failure_(request.store, request.job_store, request.world_ranks),
      barrier_(c10::make_intrusive<c10d::PrefixStore>("hierarchical/monitored barrier", request.store),
               request.rank, request.size, request.group_name) {
  if (deterministic_ && compression_.active()) {
    throw UsageError(
        str("backend hierarchical: codec=", options.codec,
            " encodes the sums of hosts, which depend on the ranks there, so sums cannot be deterministic; "
            "leave one of the two out, or encode each rank's gradients (--codec)"));
  }
  executor_ =
      TwoStageExecutor::start(make_transports(request, options), options.window,
                              [this](const std::exception_ptr& error) { return failure_.first(error); });
}

HierarchicalBackend::~HierarchicalBackend() {
  if (process_.is_current()) {
    const Duration patience =
        std::uncaught_exceptions() > 0 ? Duration::zero() : shared_memory::kLeavePatience;
    executor_->drain(patience);
    dropped_->drain(patience);
    executor_->stop();
  } else {
    // The threads and connections belong to the parent process. They are leaked here, because this process
    // cannot end them.
    // NOLINTNEXTLINE(bugprone-unhandled-exception-at-new): a process without memory for this ends anyway
    new std::pair(std::move(executor_), std::move(dropped_));
  }
}

EngineTraits HierarchicalBackend::traits() const {
  EngineTraits traits = kHierarchicalTraits;
  traits.deterministic = deterministic_;
  return traits;
}

void HierarchicalBackend::close() {
  closed_ = true;
  if (!process_.is_current()) return;
  executor_->drain(shared_memory::kLeavePatience);
  dropped_->drain(shared_memory::kLeavePatience);
}

void HierarchicalBackend::abort() {
  if (process_.is_current()) executor_->abort("the group was aborted by its caller");
}

void HierarchicalBackend::fail(const std::exception_ptr& error) {
  if (process_.is_current()) executor_->abort(error);
}

void HierarchicalBackend::check_open() const {
  if (!process_.is_current()) throw forked_child_error(group_name(), str("rank ", getRank()));
  if (closed_) throw UsageError("this group was shut down");
}

void HierarchicalBackend::startCoalescing() {
  check_open();
  RequestBackend::startCoalescing();
}

void HierarchicalBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool name_all_missing) {
  check_open();
  const bool unset = options.timeout == c10d::kUnsetTimeout;
  barrier_.wait(unset ? timeout() : bounded_duration(options.timeout), name_all_missing);
}

c10::intrusive_ptr<c10d::Backend> HierarchicalBackend::split(
    const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
    const c10::intrusive_ptr<c10d::Backend::Options>& options) {
  check_open();
  const auto part = request_of_part(request_, ranks, store, *options);
  if (!part) return nullptr;
  return options_.one_rank_a_host ? make_rank_order_backend(options_.outer, *part)
                                  : make_hierarchical_backend(*part, options_);
}

std::shared_ptr<Compression> HierarchicalBackend::compression_of(const RequestCall& call) {
  const CollectiveRequest& request = call.request;
  const bool adds = request.reduction == Reduction::sum || request.reduction == Reduction::average;
  if (request.kind != OperationKind::all_reduce || !adds || !compression_.active() ||
      request.bytes() <= kLeastCompressed || call.first_tensor().scalar_type() != at::kFloat) {
    return nullptr;
  }
  // Residuals are stored by the address of the caller's memory: a copy has a new address each time.
  return compression_.find(call.first_tensor());
}

// Sums copies on all ranks; only the root keeps the result.
std::unique_ptr<Operation> HierarchicalBackend::sum_of_copies(RequestCall& call) const {
  CollectiveRequest request = call.request;
  request.kind = OperationKind::all_reduce;
  const at::Tensor copy = dense(call.first_tensor(), "reduce").data.clone(at::MemoryFormat::Contiguous);
  request.input = request.output = call.own(copy);
  call.memory.copied_back.clear();
  if (getRank() == request.root) {
    const at::Tensor& result = call.memory.results.front();
    call.memory.copied_back.push_back({copy.view(result.sizes()), result.detach()});
  }
  return hierarchical::rank_order_sum(request, hosts());
}

std::unique_ptr<Operation> HierarchicalBackend::operation_of(RequestCall& call,
                                                             std::shared_ptr<Compression> compression) const {
  CollectiveRequest& request = call.request;
  const bool in_rank_order = deterministic_ && depends_on_order(request);
  switch (request.kind) {
    case OperationKind::broadcast:
      return hierarchical::broadcast(request, hosts());
    case OperationKind::barrier: {
      // A rank has the sum only after all ranks have contributed.
      const at::Tensor token = at::zeros({1}, at::kInt);
      request.kind = OperationKind::all_reduce;
      call.set_piece(token, true);
      request.input = request.output = call.own(token);
      [[fallthrough]];
    }
    case OperationKind::all_reduce:
      return in_rank_order ? hierarchical::rank_order_sum(request, hosts())
                           : hierarchical::all_reduce(request, hosts(),
                                                      {options_.inter_host_ranks, options_.chunk_bytes.count},
                                                      std::move(compression));
    case OperationKind::reduce:
      if (in_rank_order) return sum_of_copies(call);
      if (!call.regular && getRank() == request.root) {
        if (request.bytes() > 0) std::memcpy(request.output.base, request.input.base, request.bytes());
        request.input = request.output;
      }
      return hierarchical::reduce(request, hosts());
    case OperationKind::all_gather:
      return hierarchical::all_gather(request, hosts());
    case OperationKind::reduce_scatter:
      return in_rank_order ? hierarchical::rank_order_sum(request, hosts())
                           : hierarchical::reduce_scatter(request, hosts());
    case OperationKind::all_to_all:
      request.elements = 0;  // pieces have sizes of their own, which the headers do not compare
      [[fallthrough]];
    case OperationKind::gather:
    case OperationKind::scatter:
      return hierarchical::exchange(request, hosts());
  }
  throw UsageError(str("backend hierarchical has no operation ", name(request.kind)));
}

HierarchicalBackend::Work HierarchicalBackend::start(RequestCall&& call, Duration timeout,
                                                     bool /*caller_waits*/) {
  check_open();
  CollectiveRequest& request = call.request;
  if (reduces(request.kind) && !supports(request.type, request.reduction))
    throw UsageError(str("reduction ", name(request.reduction), " is not defined on ", name(request.type)));
  std::shared_ptr<Compression> compression = compression_of(call);
  Job job;
  job.header.compressed = compression ? 1 : 0;
  job.operation = operation_of(call, std::move(compression));
  job.header.kind = request.kind;
  job.header.type = request.type;
  job.header.reduction = request.reduction;
  job.header.root = request.root;
  job.header.elements = request.elements;
  job.header.call = static_cast<std::uint8_t>(request.call) & 0x7F;
  job.deadline = Deadline::after(timeout);
  const auto memory = std::make_shared<OperationMemory>(std::move(call.memory));
  auto work = c10::make_intrusive<ExecutorWork>(
      getRank(), call.type, memory, str(name(request.kind), " of group '", group_name(), "'"), executor_);
  job.memory = memory;
  job.done = [work](std::exception_ptr error) { work->complete(std::move(error)); };
  executor_->submit(std::move(job));
  return work;
}

HierarchicalBackend::Work HierarchicalBackend::message(const StartMessage& start, DenseTensor tensor,
                                                       const char* direction, int peer) {
  check_open();
  const OuterLink& link = *executor_->transports().between_hosts;
  const std::string whom = peer == shared_memory::kAnyRank ? "any rank" : link.name(peer);
  const auto timeout = std::chrono::ceil<std::chrono::milliseconds>(RequestBackend::timeout());
  const auto backend = link.backend();
  Tensors message{tensor.data};
  const auto started = [&] {
    try {
      return start(*backend, message);
    } catch (const std::exception& e) {
      // Only the engine between hosts can tell whether it supports messages of a rank to itself.
      if (peer != getRank()) throw;
      throw UsageError(
          str(direction, whom, ", which is this rank itself: ", rondo::split(e.what(), '\n').front()));
    }
  };
  return direct_message(started, std::move(tensor), str(direction, whom), peer, timeout, failure_, dropped_);
}

HierarchicalBackend::Work HierarchicalBackend::start_send(const at::Tensor& given, int destination, int tag) {
  check_peer(destination, getSize());
  DenseTensor tensor = executor_->transports().between_hosts->dense(given, "send");
  tensor.copy_of.reset();  // inputs are never written back
  return message(
      [&](c10d::Backend& between_hosts, Tensors& sent) { return between_hosts.send(sent, destination, tag); },
      std::move(tensor), "send to ", destination);
}

HierarchicalBackend::Work HierarchicalBackend::start_receive(const at::Tensor& given, int source, int tag) {
  const bool from_any = source == shared_memory::kAnyRank;
  if (!from_any) check_peer(source, getSize());
  return message(
      [&](c10d::Backend& between_hosts, Tensors& received) {
        return from_any ? between_hosts.recvAnysource(received, tag)
                        : between_hosts.recv(received, source, tag);
      },
      executor_->transports().between_hosts->dense(given, "recv", false), "receive from ", source);
}

c10::intrusive_ptr<c10d::Backend> make_hierarchical_backend(const BackendRequest& request,
                                                            const HierarchicalOptions& options) {
  if (request.one_host()) return request.make("native", request).backend;
  return c10::make_intrusive<HierarchicalBackend>(request, HierarchicalBackend::Options{options});
}

RegisteredBackend HierarchicalEngineFactory::engine(const Options& options) {
  return {[options](const BackendRequest& request) { return make_hierarchical_backend(request, options); },
          kHierarchicalTraits, true};
}

c10::intrusive_ptr<c10d::Backend> make_rank_order_backend(const std::string& engine,
                                                          const BackendRequest& given) {
  HierarchicalBackend::Options options;
  options.outer = engine;
  options.one_rank_a_host = true;
  BackendRequest request = given;
  request.deterministic = true;
  return c10::make_intrusive<HierarchicalBackend>(request, options);
}

// Describes everything that decides how buffers are cut and encoded; the same text on all ranks.
std::string HierarchicalBackend::describe_codec() const {
  std::vector<int> host_of;
  for (int rank = 0; rank < hosts().world_size(); ++rank) host_of.push_back(hosts().host_of(rank));
  return str("codec ", compression_.codec(), ", chunk ", options_.chunk_bytes.count, ", inter_host_ranks ",
             options_.inter_host_ranks, ", ranks on hosts ", join(host_of, " "));
}

CommState HierarchicalBackend::memory() {
  CommState state;
  if (!compression_.active()) return state;
  state["about"] = text_to_tensor(describe_codec());
  compression_.save(state);
  return state;
}

std::string HierarchicalBackend::restore_memory(const CommState& memory) {
  if (!compression_.active()) return ExtendedBackend::restore_memory(memory);
  compression_.restore({});  // after any outcome, no earlier state remains
  if (memory.empty()) return "is not there";
  if (const std::string saved = text_in(memory, "about"); saved != describe_codec())
    return str("is of ", saved, ", and this engine has ", describe_codec());
  compression_.restore(memory);
  return {};
}

}  // namespace rondo
