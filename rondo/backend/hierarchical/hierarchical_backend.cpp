#include "rondo/backend/hierarchical/hierarchical_backend.h"

#include <ATen/ops/zeros.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "rondo/backend/engine/arguments.h"
#include "rondo/backend/engine/dense_tensor.h"
#include "rondo/backend/engine/overlap.h"
#include "rondo/backend/engine/store_adapter.h"
#include "rondo/backend/hierarchical/background_work.h"
#include "rondo/backend/hierarchical/rank_order.h"
#include "rondo/backend/hierarchical/transfers.h"
#include "rondo/backend/memory/registered_memory.h"
#include "rondo/base/bytes.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

using c10d::OpType;
using namespace hierarchical;

// Smaller tensors are losses, counters and the like: exact, and never worth encoding.
constexpr std::size_t kLeastCompressed = std::size_t{64} << 10;

// Which ranks share a host, as far as the options say.
HostMap map_of(const BackendRequest& request, const HierarchicalBackend::Options& options) {
  std::vector<std::string> hosts = request.hosts;
  if (options.one_rank_a_host) {
    hosts.clear();
    for (int rank = 0; rank < request.size; ++rank) hosts.push_back(std::to_string(rank));
  }
  return {hosts, request.rank};
}

// What depends on the order in which it is computed. The smallest of zeros and of NaNs does too.
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

void check_peer(int peer, int size) {
  if (peer < 0 || peer >= size) throw UsageError(str("rank ", peer, " is not a rank of a group of ", size));
}

void check_not_empty(const std::vector<at::Tensor>& tensors, const char* operation) {
  if (tensors.empty()) throw UsageError(str(operation, ": no tensor; it requires a non-empty tensor list"));
}

// Tensors that are one contribution are of one type and shape.
void check_alike(const std::vector<at::Tensor>& tensors, const char* operation) {
  const at::Tensor& first = tensors.front();
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) throw UsageError(str(operation, ": a tensor is undefined"));
    if (tensor.layout() != at::kStrided)
      throw UsageError(
          rondo::str(operation, ": a tensor is ", tensor.layout(), "; several have to be dense"));
    if (tensor.scalar_type() == first.scalar_type() && tensor.sizes() == first.sizes()) continue;
    throw UsageError(rondo::str(operation, ": several tensors of one call are of one type and shape; found ",
                                first.sizes(), " ", first.scalar_type(), " and ", tensor.sizes(), " ",
                                tensor.scalar_type()));
  }
}

// An engine among this host's members; null when this rank is alone there.
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
    // Sums in the order of ranks go from everybody to everybody.
    if (request.deterministic ? map.host_of(rank) != map.host() : map.deals_with(rank)) peers.push_back(rank);
  }
  return std::make_unique<Transports>(Transports{std::move(map), std::move(peers),
                                                 std::move(intra_host_reduce),
                                                 std::move(intra_host_broadcast), std::move(link)});
}

}  // namespace

// One collective with the tensors it touches.
class HierarchicalBackend::Call {
 public:
  Call(OperationKind kind, OpType type) : type(type) { request.kind = kind; }

  // Sets the element type and count from one piece.
  void set_piece(const at::Tensor& piece, bool reduces) {
    const ElementType element = element_type(piece.scalar_type(), name(request.kind), reduces);
    request.type = element.type;
    request.elements = static_cast<std::uint64_t>(piece.numel()) * element.per_element;
  }
  void set_reduction(const c10d::ReduceOp& op, const at::Tensor& tensor) {
    request.reduction = reduction_of(op, tensor.scalar_type());
    if (supports(request.type, request.reduction)) return;
    throw UsageError(str("reduction ", name(request.reduction), " is not defined on ", name(request.type)));
  }
  Pieces input(const at::Tensor& tensor) { return {add(tensor, true, false), request.bytes(), {}}; }
  Pieces output(const at::Tensor& tensor) { return {add(tensor, false, true), request.bytes(), {}}; }
  Pieces in_place(const at::Tensor& tensor) { return {add(tensor, true, true), request.bytes(), {}}; }
  // In place on a copy, which replaces the tensor's contents at the end if `kept`.
  Pieces in_copy(const at::Tensor& tensor, bool kept) {
    tensors.push_back({dense(tensor, name(request.kind)).data.clone(), kept ? tensor : at::Tensor()});
    results.push_back(tensor);
    return {tensors.back().bytes(), request.bytes(), {}};
  }
  Pieces inputs(const std::vector<at::Tensor>& tensors) { return list(tensors, true, false); }
  Pieces outputs(const std::vector<at::Tensor>& tensors) { return list(tensors, false, true); }

  OpType type;
  CollectiveRequest request;
  std::unique_ptr<Operation> operation;
  bool compressed = false;
  std::vector<at::Tensor> results;
  std::vector<DenseTensor> tensors;
  std::vector<at::Tensor> read;

 private:
  std::byte* add(const at::Tensor& tensor, bool reads, bool writes) {
    tensors.push_back(dense(tensor, name(request.kind), reads));
    (writes ? results : read).push_back(tensor);
    // Inputs are never written back.
    if (!writes) tensors.back().copy_of.reset();
    return tensors.back().bytes();
  }
  Pieces list(const std::vector<at::Tensor>& all, bool reads, bool writes) {
    Pieces pieces;
    for (const at::Tensor& tensor : all) pieces.list.push_back(add(tensor, reads, writes));
    return pieces;
  }
};

HierarchicalBackend::HierarchicalBackend(const BackendRequest& request, const Options& options)
    : ExtendedBackend(request.rank, request.size),
      options_(options),
      deterministic_(request.deterministic),
      timeout_(request.timeout),
      compression_(options.codec),
      failure_(request.store, request.job_store, request.world_ranks) {
  if (deterministic_ && compression_.active()) {
    throw UsageError(str("backend hierarchical: codec=", options.codec,
                         " encodes the sums of hosts, which depend on the ranks there, so sums cannot be "
                         "deterministic; leave one "
                         "of the two out, or encode what ranks have (--codec)"));
  }
  pipeline_ = Pipeline::start(make_transports(request, options), options.window,
                              [this](const std::exception_ptr& error) { return failure_.first(error); });
}

HierarchicalBackend::~HierarchicalBackend() { pipeline_->stop(); }

EngineTraits HierarchicalBackend::traits() const {
  EngineTraits traits = kHierarchicalTraits;
  traits.deterministic = deterministic_;
  return traits;
}

void HierarchicalBackend::close() { closed_ = true; }

void HierarchicalBackend::check_open() const {
  if (closed_) throw UsageError("this group was shut down");
}

HierarchicalBackend::Work HierarchicalBackend::start(Call& call, std::chrono::milliseconds timeout) {
  check_open();
  check_overlaps({call.read, call.results, getRank(), getSize()}, name(call.request.kind));
  std::vector<DenseTensor> tensors = std::move(call.tensors);
  auto work = c10::make_intrusive<BackgroundWork>(getRank(), call.type, call.results, [tensors] {
    for (const DenseTensor& tensor : tensors) tensor.copy_back();
  });
  Job job;
  job.memory = std::make_shared<std::vector<DenseTensor>>(tensors);
  job.operation = std::move(call.operation);
  job.header.kind = call.request.kind;
  job.header.type = call.request.type;
  job.header.reduction = call.request.reduction;
  job.header.root = call.request.root;
  job.header.elements = call.request.elements;
  job.header.compressed = call.compressed ? 1 : 0;
  job.header.call = static_cast<std::uint8_t>(call.request.call) & 0x7F;
  const bool unset = timeout == c10d::kUnsetTimeout || timeout == kNoTimeout;
  job.deadline = Deadline::after(unset ? timeout_.load() : bounded_duration(timeout));
  job.done = [work](std::exception_ptr error) { work->complete(std::move(error)); };
  pipeline_->submit(std::move(job));
  return work;
}

HierarchicalBackend::Work HierarchicalBackend::broadcast(Tensors& tensors,
                                                         const c10d::BroadcastOptions& options) {
  Call call(OperationKind::broadcast, OpType::BROADCAST);
  const at::Tensor& tensor = only(tensors, "broadcast");
  call.set_piece(tensor, false);
  call.request.root = static_cast<int>(options.rootRank);
  call.request.input = call.request.output = call.in_place(tensor);
  call.operation = hierarchical::broadcast(call.request, hosts());
  return start(call, options.timeout);
}

HierarchicalBackend::Work HierarchicalBackend::reduce_in_place(const at::Tensor& tensor,
                                                               const c10d::ReduceOp& op,
                                                               std::chrono::milliseconds timeout,
                                                               const Tensors& results,
                                                               const Tensors& copies) {
  Call call(OperationKind::all_reduce, OpType::ALLREDUCE);
  call.set_piece(tensor, true);
  call.set_reduction(op, tensor);
  call.request.input = call.request.output = call.in_place(tensor);
  if (!results.empty()) call.results = results;
  for (const at::Tensor& copy : copies) call.tensors.push_back({tensor, copy.detach()});
  const bool adds = call.request.reduction == Reduction::sum || call.request.reduction == Reduction::average;
  std::shared_ptr<Compression> compression;
  if (compression_.active() && adds && tensor.scalar_type() == at::kFloat &&
      call.request.bytes() > kLeastCompressed) {
    // What encodings leave out belongs to the caller's memory: that of a copy is new each time.
    compression = compression_.find(copies.empty() ? tensor : copies.front());
    call.compressed = true;
  }
  call.operation = deterministic_ && depends_on_order(call.request)
                       ? hierarchical::rank_order_sum(call.request, hosts())
                       : hierarchical::all_reduce(call.request, hosts(),
                                                  {options_.inter_host_ranks, options_.chunk_bytes.count},
                                                  std::move(compression));
  return start(call, timeout);
}

// Several tensors are one contribution, and all get the result, as over Gloo and inside a host.
HierarchicalBackend::Work HierarchicalBackend::allreduce(Tensors& tensors,
                                                         const c10d::AllreduceOptions& options) {
  check_not_empty(tensors, "all_reduce");
  if (tensors.size() == 1) return reduce_in_place(tensors.front(), options.reduceOp, options.timeout);
  check_alike(tensors, "all_reduce");
  check_overlaps({.outputs = tensors}, "all_reduce");
  const Reduction reduction = reduction_of(options.reduceOp, tensors.front().scalar_type());
  return reduce_in_place(combined(tensors, reduction, "all_reduce"), options.reduceOp, options.timeout,
                         tensors, tensors);
}

HierarchicalBackend::Work HierarchicalBackend::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  check_not_empty(tensors, "all_reduce_coalesced");
  check_overlaps({.outputs = tensors}, "all_reduce_coalesced");
  Work last;
  // They complete in order, so the last one stands for all.
  for (const at::Tensor& tensor : tensors)
    last = reduce_in_place(tensor, options.reduceOp, options.timeout, tensors);
  return last;
}

HierarchicalBackend::Work HierarchicalBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  Call call(OperationKind::reduce, OpType::REDUCE);
  const at::Tensor& tensor = only(tensors, "reduce");
  call.set_piece(tensor, true);
  call.set_reduction(options.reduceOp, tensor);
  call.request.root = static_cast<int>(options.rootRank);
  if (deterministic_ && depends_on_order(call.request)) return reduce_in_rank_order(tensor, options);
  call.request.input = call.request.output = call.in_place(tensor);
  call.operation = hierarchical::reduce(call.request, hosts());
  return start(call, options.timeout);
}

// An all_reduce of copies, which only the root keeps.
HierarchicalBackend::Work HierarchicalBackend::reduce_in_rank_order(const at::Tensor& tensor,
                                                                    const c10d::ReduceOptions& options) {
  Call call(OperationKind::all_reduce, OpType::REDUCE);
  call.set_piece(tensor, true);
  call.set_reduction(options.reduceOp, tensor);
  call.request.input = call.request.output = call.in_copy(tensor, getRank() == options.rootRank);
  call.operation = hierarchical::rank_order_sum(call.request, hosts());
  call.request.kind = OperationKind::reduce;  // for messages, and for the other ranks to compare
  call.request.root = static_cast<int>(options.rootRank);
  return start(call, options.timeout);
}

HierarchicalBackend::Work HierarchicalBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                                         const c10d::AllgatherOptions& options) {
  Call call(OperationKind::all_gather, OpType::ALLGATHER);
  const at::Tensor& tensor = only(inputs, "all_gather");
  call.set_piece(tensor, false);
  call.request.input = call.input(tensor);
  call.request.output = call.outputs(only_list(outputs, getSize(), tensor, "all_gather"));
  call.operation = hierarchical::all_gather(call.request, hosts());
  return start(call, options.timeout);
}

HierarchicalBackend::Work HierarchicalBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                               const c10d::AllgatherOptions& options) {
  check_divides(output, input, getSize(), "all_gather_into_tensor");
  Call call(OperationKind::all_gather, OpType::_ALLGATHER_BASE);
  call.set_piece(input, false);
  call.request.input = call.input(input);
  call.request.output = call.output(output);
  call.operation = hierarchical::all_gather(call.request, hosts());
  return start(call, options.timeout);
}

HierarchicalBackend::Work HierarchicalBackend::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  if (outputs.size() != inputs.size() || inputs.empty())
    throw UsageError(
        "all_gather_into_tensor_coalesced: as many outputs as inputs are needed, and at least one");
  check_overlaps({.outputs = outputs}, "all_gather_into_tensor_coalesced");
  Work last;
  for (std::size_t i = 0; i < inputs.size(); ++i) last = _allgather_base(outputs[i], inputs[i], options);
  return last;
}

HierarchicalBackend::Work HierarchicalBackend::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                                                   const c10d::AllgatherOptions& options) {
  const TensorLists by_input = lists_by_input(outputs, inputs, getSize(), "all_gather_coalesced");
  Work last;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    TensorLists one_output{by_input[i]};
    Tensors one_input{inputs[i]};
    last = allgather(one_output, one_input, options);
  }
  return last;
}

std::unique_ptr<Operation> HierarchicalBackend::scattered_sum(const CollectiveRequest& request) const {
  return deterministic_ && depends_on_order(request) ? hierarchical::rank_order_sum(request, hosts())
                                                     : hierarchical::reduce_scatter(request, hosts());
}

HierarchicalBackend::Work HierarchicalBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                              const c10d::ReduceScatterOptions& options) {
  Call call(OperationKind::reduce_scatter, OpType::REDUCE_SCATTER);
  const at::Tensor& tensor = only(outputs, "reduce_scatter");
  call.set_piece(tensor, true);
  call.set_reduction(options.reduceOp, tensor);
  call.request.input = call.inputs(only_list(inputs, getSize(), tensor, "reduce_scatter"));
  call.request.output = call.output(tensor);
  call.operation = scattered_sum(call.request);
  return start(call, options.timeout);
}

HierarchicalBackend::Work HierarchicalBackend::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) {
  check_divides(input, output, getSize(), "reduce_scatter_tensor");
  Call call(OperationKind::reduce_scatter, OpType::_REDUCE_SCATTER_BASE);
  call.set_piece(output, true);
  call.set_reduction(options.reduceOp, output);
  call.request.input = call.input(input);
  call.request.output = call.output(output);
  call.operation = scattered_sum(call.request);
  return start(call, options.timeout);
}

HierarchicalBackend::Work HierarchicalBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  if (outputs.size() != inputs.size() || inputs.empty())
    throw UsageError(
        "reduce_scatter_tensor_coalesced: as many outputs as inputs are needed, and at least one");
  check_overlaps({.outputs = outputs}, "reduce_scatter_tensor_coalesced");
  Work last;
  for (std::size_t i = 0; i < inputs.size(); ++i) last = _reduce_scatter_base(outputs[i], inputs[i], options);
  return last;
}

// Nobody has the sum before everybody has contributed.
HierarchicalBackend::Work HierarchicalBackend::barrier(const c10d::BarrierOptions& options) {
  return reduce_in_place(at::zeros({1}, at::kInt), c10d::ReduceOp::SUM, options.timeout);
}

HierarchicalBackend::Work HierarchicalBackend::gather(TensorLists& outputs, Tensors& inputs,
                                                      const c10d::GatherOptions& options) {
  Call call(OperationKind::gather, OpType::GATHER);
  const at::Tensor& tensor = only(inputs, "gather");
  call.set_piece(tensor, false);
  call.request.root = static_cast<int>(options.rootRank);
  call.request.input = call.input(tensor);
  if (getRank() == options.rootRank)
    call.request.output = call.outputs(only_list(outputs, getSize(), tensor, "gather"));
  call.operation = hierarchical::exchange(call.request, hosts());
  return start(call, options.timeout);
}

HierarchicalBackend::Work HierarchicalBackend::scatter(Tensors& outputs, TensorLists& inputs,
                                                       const c10d::ScatterOptions& options) {
  Call call(OperationKind::scatter, OpType::SCATTER);
  const at::Tensor& tensor = only(outputs, "scatter");
  call.set_piece(tensor, false);
  call.request.root = static_cast<int>(options.rootRank);
  call.request.output = call.output(tensor);
  if (getRank() == options.rootRank)
    call.request.input = call.inputs(only_list(inputs, getSize(), tensor, "scatter"));
  call.operation = hierarchical::exchange(call.request, hosts());
  return start(call, options.timeout);
}

HierarchicalBackend::Work HierarchicalBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                                        const c10d::AllToAllOptions& options) {
  check_one_each(outputs, inputs, getSize(), "all_to_all");
  Call call(OperationKind::all_to_all, OpType::ALLTOALL);
  for (const at::Tensor& tensor : inputs) call.request.input_bytes.push_back(tensor.nbytes());
  for (const at::Tensor& tensor : outputs) call.request.output_bytes.push_back(tensor.nbytes());
  call.request.input = call.inputs(inputs);
  call.request.output = call.outputs(outputs);
  call.operation = hierarchical::exchange(call.request, hosts());
  return start(call, options.timeout);
}

HierarchicalBackend::Work HierarchicalBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                             std::vector<std::int64_t>& output_splits,
                                                             std::vector<std::int64_t>& input_splits,
                                                             const c10d::AllToAllOptions& options) {
  Tensors outputs = pieces_by_rank(output, output_splits, getSize(), "all_to_all");
  Tensors inputs = pieces_by_rank(input, input_splits, getSize(), "all_to_all");
  return alltoall(outputs, inputs, options);
}

HierarchicalBackend::Work HierarchicalBackend::message(const StartMessage& start, DenseTensor tensor,
                                                       const char* direction, int peer) {
  check_open();
  const OuterLink& link = *pipeline_->transports().between_hosts;
  const std::string whom = peer == shared_memory::kAnyRank ? "any rank" : link.name(peer);
  const auto timeout = std::chrono::ceil<std::chrono::milliseconds>(timeout_.load());
  const auto backend = link.backend();
  Tensors message{tensor.data};
  const auto started = [&] {
    try {
      return start(*backend, message);
    } catch (const std::exception& e) {
      // Which engines between hosts have messages of a rank to itself is theirs to know.
      if (peer != getRank()) throw;
      throw UsageError(
          str(direction, whom, ", which is this rank itself: ", rondo::split(e.what(), '\n').front()));
    }
  };
  return direct_message(started, std::move(tensor), str(direction, whom), peer, timeout, failure_);
}

HierarchicalBackend::Work HierarchicalBackend::send(Tensors& tensors, int destination, int tag) {
  check_peer(destination, getSize());
  DenseTensor tensor = pipeline_->transports().between_hosts->dense(only(tensors, "send"), "send");
  tensor.copy_of.reset();  // inputs are never written back
  return message(
      [&](c10d::Backend& between_hosts, Tensors& sent) { return between_hosts.send(sent, destination, tag); },
      std::move(tensor), "send to ", destination);
}

HierarchicalBackend::Work HierarchicalBackend::receive(const StartMessage& start, const Tensors& tensors,
                                                       int peer) {
  DenseTensor tensor = pipeline_->transports().between_hosts->dense(only(tensors, "recv"), "recv", false);
  check_overlaps({.outputs = tensors}, "recv");
  return message(start, std::move(tensor), "receive from ", peer);
}

HierarchicalBackend::Work HierarchicalBackend::recv(Tensors& tensors, int source, int tag) {
  check_peer(source, getSize());
  return receive([&](c10d::Backend& between_hosts,
                     Tensors& received) { return between_hosts.recv(received, source, tag); },
                 tensors, source);
}

HierarchicalBackend::Work HierarchicalBackend::recvAnysource(Tensors& tensors, int tag) {
  return receive([&](c10d::Backend& between_hosts,
                     Tensors& received) { return between_hosts.recvAnysource(received, tag); },
                 tensors, shared_memory::kAnyRank);
}

c10::intrusive_ptr<c10d::Backend> make_hierarchical_backend(const BackendRequest& request,
                                                            const HierarchicalOptions& options) {
  if (request.one_host()) return request.make("native", request).backend;
  return c10::make_intrusive<HierarchicalBackend>(request, HierarchicalBackend::Options{options});
}

RegisteredBackend HierarchicalFolder::engine(const Options& options) {
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

}  // namespace rondo
