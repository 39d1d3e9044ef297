#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "rondo/backend/engine/module.h"
#include "rondo/backend/engine/request.h"
#include "rondo/backend/mpi/factory.h"
#include "rondo/backend/mpi/module/runtime.h"
#include "rondo/backend/requests/request_backend.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/collective/shared_memory/message.h"

namespace rondo::mpi {
namespace {

// MPI as a c10d::Backend, named "mpi". Every operation is a nonblocking one of MPI, progressed by the
// runtime's thread. mpirun ends the job when a process dies; a wait throws TimeoutError at its deadline.
class MpiBackend final : public RequestBackend {
 public:
  // Collective. Throws UsageError if MPI numbers this process otherwise, and TimeoutError naming a member
  // that does not arrive.
  explicit MpiBackend(const BackendRequest& request);

  EngineTraits traits() const override { return kMpiTraits; }
  const std::string getBackendName() const override { return "mpi"; }
  std::uint64_t getSequenceNumberForGroup() override { return sequence_; }

 private:
  Work start(RequestCall&& call, Duration timeout, bool caller_waits) override;
  Work start_send(const at::Tensor& tensor, int destination, int tag) override;
  Work start_receive(const at::Tensor& tensor, int source, int tag) override;
  // Starts an operation. `start` and, after its completion, `conclude` run on the MPI thread.
  Work post(c10d::OpType type, const std::string& what, OperationMemory&& memory, Duration limit,
            std::function<MPI_Request()> start, std::function<void()> conclude = {});

  MPI_Comm communicator_ = MPI_COMM_NULL;
  std::atomic<std::uint64_t> sequence_ = 0;
};

using c10d::OpType;

class MpiWork final : public BackgroundWork {
 public:
  MpiWork(int rank, OpType type, std::shared_ptr<const OperationMemory> memory, Duration limit,
          std::string what)
      : BackgroundWork(rank, type, std::move(memory)), limit_(limit), what_(std::move(what)) {}

  bool wait(std::chrono::milliseconds timeout) override {
    std::unique_lock lock(mutex_);
    const Duration limit = timeout == kNoTimeout ? limit_ : bounded_duration(timeout);
    if (!cv_.wait_for(lock, limit, [this] { return completed_ || aborted_; }))
      throw TimeoutError(str(what_, " timed out after ", milliseconds(limit), " ms"), {});
    if (exception_) std::rethrow_exception(exception_);
    if (!completed_) throw CancelledError(what_ + " was aborted");
    return true;
  }
  // Ends waits for the operation. MPI keeps the request, and the task its memory.
  void abort() override {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    cv_.notify_all();
  }

 private:
  Duration limit_;
  std::string what_;
  bool aborted_ = false;  // protected by c10d::Work's mutex_
};

// Bytes of each piece of an input or output.
using PieceBytes = std::vector<std::uint64_t>;

std::uint64_t sum_of(const PieceBytes& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0});
}

// A collective in MPI's form: pieces are adjacent in memory.
struct Collective {
  OperationKind kind = OperationKind::barrier;
  at::ScalarType type = at::kByte;
  Reduction reduction = Reduction::sum;
  int root = 0;
  bool at_root = false;
  std::byte* from = nullptr;
  std::byte* to = nullptr;
  bool in_place = false;  // this rank's input is already at its place in the result
  PieceBytes in = {};
  PieceBytes out = {};
  // For all_to_all, in MPI's elements; MPI reads them until the operation has ended.
  std::vector<int> in_counts = {}, in_begins = {}, out_counts = {}, out_begins = {};
  // Tensors to copy to the results after MPI has completed.
  std::vector<DenseTensor> rows = {};
};

// Returns the start of pieces that are adjacent in memory; null if they are not, or if all are empty.
std::byte* side_by_side(const Pieces& pieces, const PieceBytes& bytes) {
  if (pieces.contiguous()) return pieces.base;
  std::byte* begin = nullptr;
  std::uint64_t offset = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] == 0) continue;
    if (begin == nullptr) begin = pieces.at(i);
    if (pieces.at(i) != begin + offset) return nullptr;
    offset += bytes[i];
  }
  return begin;
}

// Returns a contiguous copy of the pieces, owned by `memory`.
std::byte* copied(const Pieces& pieces, const PieceBytes& bytes, OperationMemory& memory) {
  const at::Tensor copy = at::empty({static_cast<std::int64_t>(sum_of(bytes))}, at::kByte);
  memory.alive.push_back(copy);
  auto* const begin = static_cast<std::byte*>(copy.data_ptr());
  std::byte* to = begin;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const std::byte* const piece = pieces.contiguous() ? pieces.base + (to - begin) : pieces.list[i];
    if (bytes[i] > 0) std::memcpy(to, piece, bytes[i]);
    to += bytes[i];
  }
  return begin;
}

// Returns a contiguous buffer for results that are not adjacent; it is copied to them at the end.
std::byte* memory_for_results(Collective& collective, OperationMemory& memory) {
  const auto width = c10::elementSize(collective.type);
  const at::Tensor all =
      at::empty({static_cast<std::int64_t>(sum_of(collective.out) / width)}, collective.type);
  std::int64_t begin = 0;
  for (const at::Tensor& result : memory.results) {
    collective.rows.push_back({all.narrow(0, begin, result.numel()).view(result.sizes()), result});
    begin += result.numel();
  }
  memory.copied_back.clear();
  memory.alive.push_back(all);
  return static_cast<std::byte*>(all.data_ptr());
}

bool overlap(const Collective& what) {
  const auto address = [](const std::byte* data) { return reinterpret_cast<std::uintptr_t>(data); };
  return address(what.from) < address(what.to) + sum_of(what.out) &&
         address(what.to) < address(what.from) + sum_of(what.in);
}

bool is_in_place(const Collective& what, int rank) {
  switch (what.kind) {
    case OperationKind::all_reduce:
    case OperationKind::broadcast:
    case OperationKind::reduce:
      return what.from == what.to;
    case OperationKind::all_gather:
      return what.to != nullptr && what.from == what.to + static_cast<std::size_t>(rank) * what.in.front();
    default:
      return false;
  }
}

// Converts a call to MPI's form. `call` keeps the copies that this needs.
Collective collective_of(RequestCall& call, int rank, int ranks) {
  const CollectiveRequest& request = call.request;
  Collective result{.kind = request.kind,
                    .reduction = request.reduction,
                    .root = request.root,
                    .at_root = rank == request.root};
  if (request.kind == OperationKind::barrier) return result;
  result.type = call.first_tensor().scalar_type();
  const auto bytes = [&](const PieceBytes& given, std::initializer_list<OperationKind> with_pieces) {
    const bool many = std::find(with_pieces.begin(), with_pieces.end(), request.kind) != with_pieces.end();
    return given.empty() ? PieceBytes(many ? static_cast<std::size_t>(ranks) : 1, request.bytes()) : given;
  };
  result.in = bytes(request.input_bytes, {OperationKind::reduce_scatter, OperationKind::scatter});
  result.out = bytes(request.output_bytes, {OperationKind::all_gather, OperationKind::gather});
  result.to = side_by_side(request.output, result.out);
  if (result.to == nullptr && !request.output.contiguous())
    result.to = memory_for_results(result, call.memory);
  result.from = side_by_side(request.input, result.in);
  if (result.from == nullptr && !request.input.contiguous())
    result.from = copied(request.input, result.in, call.memory);
  result.in_place = is_in_place(result, rank);
  // MPI forbids overlapping input and output.
  if (result.from != nullptr && result.to != nullptr && !result.in_place && overlap(result))
    result.from = copied(request.input, result.in, call.memory);
  return result;
}

// Converts the bytes of a type to a number of MPI's elements.
int count_of(std::uint64_t bytes, std::size_t width, const ElementType& type) {
  const std::uint64_t count = bytes / width * static_cast<unsigned>(type.per_element);
  if (count > std::numeric_limits<int>::max())
    throw UsageError(str("backend mpi: ", count, " elements exceed MPI's limit of 2^31 - 1"));
  return static_cast<int>(count);
}

// Starts all_to_all. On the MPI thread.
MPI_Request begin_exchange(Collective& what, const ElementType& type, MPI_Comm communicator) {
  const auto split = [&](const PieceBytes& pieces, std::vector<int>& counts, std::vector<int>& begins) {
    std::uint64_t begin = 0;
    for (const std::uint64_t bytes : pieces) {
      counts.push_back(count_of(bytes, c10::elementSize(what.type), type));
      begins.push_back(count_of(begin, c10::elementSize(what.type), type));
      begin += bytes;
    }
  };
  split(what.in, what.in_counts, what.in_begins);
  split(what.out, what.out_counts, what.out_begins);
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Ialltoallv(what.from, what.in_counts.data(), what.in_begins.data(), type.type, what.to,
                       what.out_counts.data(), what.out_begins.data(), type.type, communicator, &request),
        "MPI_Ialltoallv");
  return request;
}

// Starts an operation. On the MPI thread.
MPI_Request begin(Collective& what, MPI_Comm communicator) {
  MPI_Request request = MPI_REQUEST_NULL;
  if (what.kind == OperationKind::barrier) {
    check(MPI_Ibarrier(communicator, &request), "MPI_Ibarrier");
    return request;
  }
  const bool adds = reduces(what.kind);
  const ElementType type = element_type(what.type, adds);
  if (what.kind == OperationKind::all_to_all) return begin_exchange(what, type, communicator);
  const MPI_Op op = adds ? reduction(what.reduction, what.type) : MPI_OP_NULL;
  // Bytes of one piece; all pieces of a list have one size.
  const std::uint64_t bytes = std::min(what.in.front(), what.out.front());
  const int count = count_of(bytes, c10::elementSize(what.type), type);
  const void* const from = what.in_place ? MPI_IN_PLACE : what.from;
  switch (what.kind) {
    case OperationKind::broadcast:
      check(MPI_Ibcast(what.to, count, type.type, what.root, communicator, &request), "MPI_Ibcast");
      break;
    case OperationKind::all_reduce:
      check(MPI_Iallreduce(from, what.to, count, type.type, op, communicator, &request), "MPI_Iallreduce");
      break;
    case OperationKind::reduce:
      check(MPI_Ireduce(what.at_root ? from : what.from, what.at_root ? what.to : nullptr, count, type.type,
                        op, what.root, communicator, &request),
            "MPI_Ireduce");
      break;
    case OperationKind::reduce_scatter:
      check(MPI_Ireduce_scatter_block(from, what.to, count, type.type, op, communicator, &request),
            "MPI_Ireduce_scatter_block");
      break;
    case OperationKind::all_gather:
      check(MPI_Iallgather(from, count, type.type, what.to, count, type.type, communicator, &request),
            "MPI_Iallgather");
      break;
    case OperationKind::gather:
      check(MPI_Igather(from, count, type.type, what.to, count, type.type, what.root, communicator, &request),
            "MPI_Igather");
      break;
    case OperationKind::scatter:
      check(
          MPI_Iscatter(from, count, type.type, what.to, count, type.type, what.root, communicator, &request),
          "MPI_Iscatter");
      break;
    default:
      throw UsageError(str("backend mpi has no operation ", name(what.kind)));
  }
  return request;
}

// Returns the number of MPI's elements of a dense CPU tensor. On the MPI thread.
int count_of(const at::Tensor& tensor, const ElementType& type) {
  return count_of(tensor.nbytes(), tensor.itemsize(), type);
}

// Waits for all members, because MPI makes a communicator without a deadline.
void wait_for_members(const BackendRequest& request) {
  const auto key = [](int rank) { return str("mpi/", rank); };
  const Deadline deadline = Deadline::after(request.timeout);
  request.store->set(key(request.rank), "here");
  for (int rank = 0; rank < request.size; ++rank) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline.remaining());
    try {
      request.store->wait({key(rank)}, std::max(left, std::chrono::milliseconds(1)));
    } catch (const std::exception&) {
      throw TimeoutError(
          str("backend mpi: rank ", rank, " of ", request.size, " did not join group '", request.group_name,
              "' within ", milliseconds(request.timeout), " ms; its own output says why"),
          {rank});
    }
  }
}

// Returns whether MPI's launcher started this process. Otherwise MPI would make a job of this rank alone.
// Ranks of one host that do so at the same time disturb each other, and MPI's messages then do not name the
// cause.
bool was_started_by_launcher_of_mpi() {
  constexpr std::array kRankVariables = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};
  return std::any_of(kRankVariables.begin(), kRankVariables.end(),
                     [](const char* name) { return std::getenv(name) != nullptr; });
}

}  // namespace

MpiBackend::MpiBackend(const BackendRequest& request) : RequestBackend(request, Overlaps::copied) {
  const auto world_rank = [&](int rank) {
    return request.world_ranks.empty() ? rank : request.world_ranks[static_cast<std::size_t>(rank)];
  };
  if (request.size > 1 && !was_started_by_launcher_of_mpi()) {
    throw UsageError(
        str("backend mpi: this is rank ", world_rank(request.rank), " of ", request.size,
            ", but no MPI launcher started it; start the ranks with mpirun, which assigns their numbers"));
  }
  Runtime& runtime = Runtime::instance();
  if (world_rank(request.rank) != runtime.rank()) {
    throw UsageError(str("backend mpi: this is rank ", world_rank(request.rank), ", but MPI numbers it ",
                         runtime.rank(), " of ", runtime.size(),
                         "; start the ranks with mpirun, which assigns their numbers"));
  }
  if (request.store) wait_for_members(request);
  std::vector<int> ranks;
  for (int rank = 0; rank < request.size; ++rank) ranks.push_back(world_rank(rank));
  // The same number on all members, and another one for every overlapping group.
  const int tag = static_cast<int>(std::hash<std::string>()(request.group_name) % 30000);
  runtime.run([&] {
    MPI_Group world = MPI_GROUP_NULL;
    MPI_Group members = MPI_GROUP_NULL;
    check(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
    check(MPI_Group_incl(world, request.size, ranks.data(), &members), "MPI_Group_incl");
    check(MPI_Comm_create_group(MPI_COMM_WORLD, members, tag, &communicator_), "MPI_Comm_create_group");
    check(MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    MPI_Group_free(&members);
    MPI_Group_free(&world);
  });
}

MpiBackend::Work MpiBackend::post(OpType type, const std::string& what, OperationMemory&& memory,
                                  Duration limit, std::function<MPI_Request()> start,
                                  std::function<void()> conclude) {
  auto work = c10::make_intrusive<MpiWork>(
      getRank(), type, std::make_shared<const OperationMemory>(std::move(memory)), limit,
      str(what, ", sequence ", sequence_++, ", on rank ", getRank(), " of ", getSize(), " (mpi)"));
  auto task = std::make_shared<Task>();
  // `start`, with the backend that it captured, lives as long as MPI may use it; the Work keeps the tensors.
  task->start = [self = c10::intrusive_ptr<MpiBackend>::reclaim_copy(this), start = std::move(start)] {
    return std::vector<MPI_Request>{start()};
  };
  task->done = [work, conclude = std::move(conclude)](std::exception_ptr error) {
    try {
      if (!error && conclude) conclude();
    } catch (...) {
      error = std::current_exception();
    }
    work->complete(error);
  };
  Runtime::instance().post(std::move(task));
  return work;
}

MpiBackend::Work MpiBackend::start(RequestCall&& call, Duration timeout, bool /*caller_waits*/) {
  const auto what = std::make_shared<Collective>(collective_of(call, getRank(), getSize()));
  const auto conclude = [what, ranks = getSize()] {
    const bool has_result = what->kind != OperationKind::reduce || what->at_root;
    if (reduces(what->kind) && what->reduction == Reduction::average && has_result) {
      const auto elements = static_cast<std::int64_t>(what->out.front() / c10::elementSize(what->type));
      at::from_blob(what->to, {elements}, what->type).div_(ranks);
    }
    for (const DenseTensor& row : what->rows) DenseTensor{row.data, row.copy_of.detach()}.copy_back();
  };
  return post(
      call.type, name(call.request.kind), std::move(call.memory), timeout,
      [what, this] { return begin(*what, communicator_); }, conclude);
}

MpiBackend::Work MpiBackend::start_send(const at::Tensor& given, int destination, int tag) {
  check_peer(destination, getSize());
  const at::Tensor data = dense(given, "send").data;
  return post(OpType::SEND, str("send to rank ", destination, ", tag ", tag),
              {.alive = {data}, .results = {given}}, timeout(), [=, this] {
                const ElementType type = element_type(data.scalar_type(), false);
                MPI_Request request = MPI_REQUEST_NULL;
                check(MPI_Isend(data.data_ptr(), count_of(data, type), type.type, destination, tag,
                                communicator_, &request),
                      "MPI_Isend");
                return request;
              });
}

MpiBackend::Work MpiBackend::start_receive(const at::Tensor& given, int source, int tag) {
  if (source == shared_memory::kAnyRank)
    throw UsageError("backend mpi: recvAnysource is not supported; use recv with the sender's rank");
  check_peer(source, getSize());
  const DenseTensor tensor = dense(given, "recv", false);
  OperationMemory memory{.alive = {tensor.data}, .results = {given}};
  if (tensor.copy_of.defined()) memory.copied_back.push_back(tensor);
  return post(OpType::RECV, str("recv from rank ", source, ", tag ", tag), std::move(memory), timeout(),
              [data = tensor.data, source, tag, this] {
                const ElementType type = element_type(data.scalar_type(), false);
                MPI_Request request = MPI_REQUEST_NULL;
                check(MPI_Irecv(data.data_ptr(), count_of(data, type), type.type, source, tag, communicator_,
                                &request),
                      "MPI_Irecv");
                return request;
              });
}

}  // namespace rondo::mpi

extern "C" void rondo_register_backends(rondo::BackendModule& module) {
  module.add("mpi", [](const rondo::BackendRequest& request) -> c10::intrusive_ptr<c10d::Backend> {
    return c10::make_intrusive<rondo::mpi::MpiBackend>(request);
  });
}
