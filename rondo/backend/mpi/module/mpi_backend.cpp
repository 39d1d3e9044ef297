#include "rondo/backend/mpi/module/mpi_backend.h"

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <numeric>

#include "rondo/backend/engine/module.h"
#include "rondo/backend/mpi/module/element_types.h"
#include "rondo/backend/mpi/module/runtime.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo::mpi {
namespace {

using c10d::OpType;

class MpiWork final : public c10d::Work {
 public:
  MpiWork(int rank, OpType type, std::vector<at::Tensor> results, Duration limit, std::string what)
      : c10d::Work(rank, type),
        results_(std::move(results)),
        limit_(limit),
        what_(std::move(what)),
        future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {}

  void complete(const std::exception_ptr& error) {
    finish(error);
    if (future_->completed()) return;
    if (error) {
      future_->setError(error);
    } else {
      future_->markCompleted(c10::IValue(results_));
    }
  }

  bool wait(std::chrono::milliseconds timeout) override {
    std::unique_lock lock(mutex_);
    const Duration limit = timeout == kNoTimeout ? limit_ : bounded_duration(timeout);
    if (!cv_.wait_for(lock, limit, [this] { return completed_ || aborted_; }))
      throw TimeoutError(str(what_, " timed out after ", milliseconds(limit), " ms"), {});
    if (exception_) std::rethrow_exception(exception_);
    if (!completed_) throw CancelledError(what_ + " was aborted");
    return true;
  }
  // Ends waits for it. MPI keeps the request, and the task its memory.
  void abort() override {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    cv_.notify_all();
  }
  std::vector<at::Tensor> result() override { return results_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  std::vector<at::Tensor> results_;
  Duration limit_;
  std::string what_;
  bool aborted_ = false;  // protected by c10d::Work's mutex_
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

const at::Tensor& only(const std::vector<at::Tensor>& tensors) {
  if (tensors.size() != 1) throw UsageError(str("backend mpi: expected one tensor, got ", tensors.size()));
  return tensors.front();
}

at::Tensor dense(const at::Tensor& tensor) {
  return tensor.detach().to(at::kCPU).contiguous().resolve_conj().resolve_neg();
}

// Dense memory for what `tensor` is to hold.
at::Tensor memory_like(const at::Tensor& tensor) {
  return at::empty(tensor.sizes(), tensor.options().device(at::kCPU).requires_grad(false));
}

// What MPI is to write: the tensor itself where that is possible.
at::Tensor place_for(const at::Tensor& tensor) {
  if (tensor.device().is_cpu() && tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg())
    return tensor.detach();
  return memory_like(tensor);
}

// Of dense tensors; MPI forbids it of what it reads and what it writes.
bool overlap(const at::Tensor& a, const at::Tensor& b) {
  const auto begin = [](const at::Tensor& t) { return reinterpret_cast<std::uintptr_t>(t.const_data_ptr()); };
  return begin(a) < begin(b) + b.nbytes() && begin(b) < begin(a) + a.nbytes();
}

bool is_piece_of(const at::Tensor& small, const at::Tensor& large, int ranks) {
  return large.scalar_type() == small.scalar_type() && large.numel() == small.numel() * ranks;
}

void check_divides(const at::Tensor& large, const at::Tensor& small, int ranks, const char* operation) {
  if (is_piece_of(small, large, ranks)) return;
  throw UsageError(rondo::str("backend mpi: ", operation, ": ", large.sizes(), " ", large.scalar_type(),
                              " is not ", ranks, " times ", small.sizes(), " ", small.scalar_type()));
}

// The one list, with a tensor of as many elements and the same type as `like` for each of the ranks.
const std::vector<at::Tensor>& only_list(const std::vector<std::vector<at::Tensor>>& lists,
                                         const at::Tensor& like, int ranks, const char* operation) {
  if (lists.size() != 1 || lists.front().size() != static_cast<std::size_t>(ranks))
    throw UsageError(str("backend mpi: ", operation, ": expected one list with a tensor for each rank"));
  for (const at::Tensor& tensor : lists.front()) {
    if (is_piece_of(tensor, like, 1)) continue;
    throw UsageError(rondo::str("backend mpi: ", operation,
                                ": all tensors must have one shape and dtype; found ", tensor.sizes(), " ",
                                tensor.scalar_type(), " and ", like.sizes(), " ", like.scalar_type()));
  }
  return lists.front();
}

// How many rows of `tensor` belong to each rank: `splits`, or as many to each where it is empty.
std::vector<std::int64_t> rows_by_rank(const at::Tensor& tensor, const std::vector<std::int64_t>& splits,
                                       int ranks) {
  const auto size = static_cast<std::size_t>(ranks);
  const std::int64_t all = tensor.size(0);
  auto rows = splits.empty() ? std::vector<std::int64_t>(size, all / ranks) : splits;
  const bool negative = std::any_of(rows.begin(), rows.end(), [](std::int64_t count) { return count < 0; });
  if (rows.size() == size && !negative && std::accumulate(rows.begin(), rows.end(), std::int64_t{0}) == all)
    return rows;
  throw UsageError(str("backend mpi: all_to_all: a first dimension of ", all, " does not divide ",
                       splits.empty() ? "equally" : "as the splits say", " among ", ranks, " ranks"));
}

void copy_back(const at::Tensor& tensor, const at::Tensor& from) {
  if (!tensor.is_same(from) && tensor.data_ptr() != from.data_ptr()) tensor.detach().copy_(from);
}

int count_of(std::int64_t elements, const ElementType& type) {
  const std::int64_t count = elements * type.per_element;
  if (count > std::numeric_limits<int>::max())
    throw UsageError(str("backend mpi: ", count, " elements are more than MPI counts (2^31 - 1)"));
  return static_cast<int>(count);
}

// MPI makes a communicator without a deadline, so it begins when all members are known to be there.
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
          str("backend mpi: rank ", rank, " of ", request.size, " did not come to group '",
              request.group_name, "' within ", milliseconds(request.timeout), " ms; its own output says why"),
          {rank});
    }
  }
}

// Otherwise MPI would make a job of this rank alone. Ranks of one host that do so at the same time disturb
// each other, and MPI's messages then say nothing of the cause.
bool was_started_by_launcher_of_mpi() {
  constexpr std::array kRankVariables = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};
  return std::any_of(kRankVariables.begin(), kRankVariables.end(),
                     [](const char* name) { return std::getenv(name) != nullptr; });
}

// Row r of `rows` into tensor r.
void copy_rows(const at::Tensor& rows, const std::vector<at::Tensor>& targets) {
  for (std::size_t rank = 0; rank < targets.size(); ++rank)
    targets[rank].detach().copy_(rows[static_cast<std::int64_t>(rank)].view(targets[rank].sizes()));
}

}  // namespace

// One operation before it starts.
struct MpiBackend::Call {
  OpType type;
  std::string what;
  std::function<MPI_Request()> start;  // on the MPI thread
  std::vector<at::Tensor> results = {};
  std::function<void()> conclude = {};  // on the MPI thread, when MPI is done
  Duration limit;
};

MpiBackend::MpiBackend(const BackendRequest& request)
    : c10d::Backend(request.rank, request.size), timeout_(request.timeout) {
  const auto world_rank = [&](int rank) {
    return request.world_ranks.empty() ? rank : request.world_ranks[static_cast<std::size_t>(rank)];
  };
  if (request.size > 1 && !was_started_by_launcher_of_mpi()) {
    throw UsageError(str("backend mpi: this is rank ", world_rank(request.rank), " of ", request.size,
                         ", and no launcher of MPI has started it; start the ranks with mpirun, and let it "
                         "number them"));
  }
  Runtime& runtime = Runtime::instance();
  if (world_rank(request.rank) != runtime.rank()) {
    throw UsageError(str("backend mpi: this is rank ", world_rank(request.rank), ", but MPI numbers it ",
                         runtime.rank(), " of ", runtime.size(),
                         "; start the ranks with mpirun, and let it number them"));
  }
  if (request.store) wait_for_members(request);
  std::vector<int> ranks;
  for (int rank = 0; rank < request.size; ++rank) ranks.push_back(world_rank(rank));
  // The same number on all members, and another for every group that overlaps.
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

Duration MpiBackend::timeout(std::chrono::milliseconds of_call) const {
  const bool unset = of_call == c10d::kUnsetTimeout || of_call == kNoTimeout;
  return unset ? timeout_.load() : bounded_duration(of_call);
}

MpiBackend::Work MpiBackend::start(Call call) {
  const std::string what =
      str(call.what, ", sequence ", sequence_++, ", on rank ", getRank(), " of ", getSize(), " (mpi)");
  auto work = c10::make_intrusive<MpiWork>(getRank(), call.type, call.results, call.limit, what);
  auto task = std::make_shared<Task>();
  // What `start` captured, the backend included, stays as long as MPI may use it.
  task->start = [self = c10::intrusive_ptr<MpiBackend>::reclaim_copy(this), start = std::move(call.start)] {
    return std::vector<MPI_Request>{start()};
  };
  task->done = [work, conclude = std::move(call.conclude)](std::exception_ptr error) {
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

MpiBackend::Work MpiBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const at::Tensor tensor = only(tensors);
  const at::Tensor data = getRank() == options.rootRank ? dense(tensor) : place_for(tensor);
  const int root = static_cast<int>(options.rootRank);
  return start({OpType::BROADCAST, "broadcast",
                [=, this] {
                  const ElementType type = element_type(data.scalar_type(), false);
                  MPI_Request request = MPI_REQUEST_NULL;
                  check(MPI_Ibcast(data.data_ptr(), count_of(data.numel(), type), type.type, root,
                                   communicator_, &request),
                        "MPI_Ibcast");
                  return request;
                },
                tensors, [=] { copy_back(tensor, data); }, timeout(options.timeout)});
}

MpiBackend::Work MpiBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  if (tensors.empty()) throw UsageError("backend mpi: all_reduce: no tensor");
  Work last;
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor data = dense(tensor);
    const c10d::ReduceOp op = options.reduceOp;
    last =
        start({OpType::ALLREDUCE, "all_reduce",
               [=, this] {
                 const ElementType type = element_type(data.scalar_type(), true);
                 MPI_Request request = MPI_REQUEST_NULL;
                 check(MPI_Iallreduce(MPI_IN_PLACE, data.data_ptr(), count_of(data.numel(), type), type.type,
                                      reduction(op, data.scalar_type()), communicator_, &request),
                       "MPI_Iallreduce");
                 return request;
               },
               tensors,
               [=, this] {
                 if (op == c10d::ReduceOp::AVG) data.div_(getSize());
                 copy_back(tensor, data);
               },
               timeout(options.timeout)});
  }
  return last;
}

MpiBackend::Work MpiBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const at::Tensor tensor = only(tensors);
  const at::Tensor data = dense(tensor);
  const c10d::ReduceOp op = options.reduceOp;
  const int root = static_cast<int>(options.rootRank);
  return start({OpType::REDUCE, "reduce",
                [=, this] {
                  const ElementType type = element_type(data.scalar_type(), true);
                  const bool at_root = getRank() == root;
                  MPI_Request request = MPI_REQUEST_NULL;
                  check(MPI_Ireduce(at_root ? MPI_IN_PLACE : data.data_ptr(),
                                    at_root ? data.data_ptr() : nullptr, count_of(data.numel(), type),
                                    type.type, reduction(op, data.scalar_type()), root, communicator_,
                                    &request),
                        "MPI_Ireduce");
                  return request;
                },
                tensors,
                [=, this] {
                  if (getRank() != root) return;
                  if (op == c10d::ReduceOp::AVG) data.div_(getSize());
                  copy_back(tensor, data);
                },
                timeout(options.timeout)});
}

MpiBackend::Work MpiBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                             const c10d::AllgatherOptions& options) {
  check_divides(output, input, getSize(), "all_gather");
  at::Tensor from = dense(input);
  const at::Tensor to = place_for(output);
  const bool in_place = from.const_data_ptr() == static_cast<const std::byte*>(to.const_data_ptr()) +
                                                     static_cast<std::size_t>(getRank()) * from.nbytes();
  if (!in_place && overlap(from, to)) from = from.clone();
  return start({OpType::_ALLGATHER_BASE,
                "all_gather",
                [=, this] {
                  const ElementType type = element_type(from.scalar_type(), false);
                  const int count = count_of(from.numel(), type);
                  MPI_Request request = MPI_REQUEST_NULL;
                  check(MPI_Iallgather(in_place ? MPI_IN_PLACE : from.data_ptr(), count, type.type,
                                       to.data_ptr(), count, type.type, communicator_, &request),
                        "MPI_Iallgather");
                  return request;
                },
                {output},
                [=, target = output] { copy_back(target, to); },
                timeout(options.timeout)});
}

MpiBackend::Work MpiBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                       const c10d::AllgatherOptions& options) {
  const at::Tensor from = dense(only(inputs));
  const Tensors targets = only_list(outputs, from, getSize(), "all_gather");
  const at::Tensor to = at::empty({getSize(), from.numel()}, from.options());
  return start({OpType::ALLGATHER, "all_gather",
                [=, this] {
                  const ElementType type = element_type(from.scalar_type(), false);
                  const int count = count_of(from.numel(), type);
                  MPI_Request request = MPI_REQUEST_NULL;
                  check(MPI_Iallgather(from.data_ptr(), count, type.type, to.data_ptr(), count, type.type,
                                       communicator_, &request),
                        "MPI_Iallgather");
                  return request;
                },
                targets, [=] { copy_rows(to, targets); }, timeout(options.timeout)});
}

MpiBackend::Work MpiBackend::gather(TensorLists& outputs, Tensors& inputs,
                                    const c10d::GatherOptions& options) {
  const at::Tensor from = dense(only(inputs));
  const int root = static_cast<int>(options.rootRank);
  const bool at_root = getRank() == root;
  Tensors targets;
  if (at_root) targets = only_list(outputs, from, getSize(), "gather");
  const at::Tensor to = at_root ? at::empty({getSize(), from.numel()}, from.options()) : at::Tensor();
  return start({OpType::GATHER, "gather",
                [=, this] {
                  const ElementType type = element_type(from.scalar_type(), false);
                  const int count = count_of(from.numel(), type);
                  MPI_Request request = MPI_REQUEST_NULL;
                  check(MPI_Igather(from.data_ptr(), count, type.type, at_root ? to.data_ptr() : nullptr,
                                    count, type.type, root, communicator_, &request),
                        "MPI_Igather");
                  return request;
                },
                targets, [=] { copy_rows(to, targets); }, timeout(options.timeout)});
}

MpiBackend::Work MpiBackend::scatter(Tensors& outputs, TensorLists& inputs,
                                     const c10d::ScatterOptions& options) {
  const at::Tensor output = only(outputs);
  const at::Tensor to = place_for(output);
  const int root = static_cast<int>(options.rootRank);
  const bool at_root = getRank() == root;
  at::Tensor from;
  if (at_root) {
    Tensors flat;
    for (const at::Tensor& input : only_list(inputs, output, getSize(), "scatter"))
      flat.push_back(dense(input).flatten());
    from = at::cat(flat);
  }
  return start({OpType::SCATTER, "scatter",
                [=, this] {
                  const ElementType type = element_type(to.scalar_type(), false);
                  const int count = count_of(to.numel(), type);
                  MPI_Request request = MPI_REQUEST_NULL;
                  check(MPI_Iscatter(at_root ? from.data_ptr() : nullptr, count, type.type, to.data_ptr(),
                                     count, type.type, root, communicator_, &request),
                        "MPI_Iscatter");
                  return request;
                },
                outputs, [=] { copy_back(output, to); }, timeout(options.timeout)});
}

MpiBackend::Work MpiBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                            const c10d::ReduceScatterOptions& options) {
  at::Tensor output = only(outputs);
  Tensors flat;
  for (const at::Tensor& input : only_list(inputs, output, getSize(), "reduce_scatter"))
    flat.push_back(dense(input).flatten());
  at::Tensor all = at::cat(flat);
  return _reduce_scatter_base(output, all, options);
}

MpiBackend::Work MpiBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                  const c10d::ReduceScatterOptions& options) {
  check_divides(input, output, getSize(), "reduce_scatter");
  const at::Tensor from = dense(input);
  at::Tensor to = place_for(output);
  if (overlap(from, to)) to = memory_like(output);
  const c10d::ReduceOp op = options.reduceOp;
  return start({OpType::_REDUCE_SCATTER_BASE,
                "reduce_scatter",
                [=, this] {
                  const ElementType type = element_type(from.scalar_type(), true);
                  MPI_Request request = MPI_REQUEST_NULL;
                  check(MPI_Ireduce_scatter_block(from.data_ptr(), to.data_ptr(), count_of(to.numel(), type),
                                                  type.type, reduction(op, from.scalar_type()), communicator_,
                                                  &request),
                        "MPI_Ireduce_scatter_block");
                  return request;
                },
                {output},
                [=, this, target = output] {
                  if (op == c10d::ReduceOp::AVG) to.div_(getSize());
                  copy_back(target, to);
                },
                timeout(options.timeout)});
}

MpiBackend::Work MpiBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                           std::vector<std::int64_t>& output_splits,
                                           std::vector<std::int64_t>& input_splits,
                                           const c10d::AllToAllOptions& options) {
  struct Split {
    std::vector<int> counts;
    std::vector<int> begins;
  };
  if (input.scalar_type() != output.scalar_type())
    throw UsageError("backend mpi: all_to_all: the input and the output must have one dtype");
  const ElementType type = element_type(input.scalar_type(), false);
  const auto split = [&](const at::Tensor& tensor, const std::vector<std::int64_t>& splits) {
    const std::int64_t row = tensor.size(0) == 0 ? 0 : tensor.numel() / tensor.size(0);
    auto result = std::make_shared<Split>();
    std::int64_t begin = 0;
    for (const std::int64_t rows : rows_by_rank(tensor, splits, getSize())) {
      const std::int64_t count = rows * row;
      result->counts.push_back(count_of(count, type));
      result->begins.push_back(count_of(begin, type));
      begin += count;
    }
    return result;
  };
  const auto sent = split(input, input_splits);
  const auto received = split(output, output_splits);
  const at::Tensor from = dense(input);
  at::Tensor to = place_for(output);
  if (overlap(from, to)) to = memory_like(output);
  return start({OpType::ALLTOALL_BASE,
                "all_to_all",
                [=, this] {
                  MPI_Request request = MPI_REQUEST_NULL;
                  check(MPI_Ialltoallv(from.data_ptr(), sent->counts.data(), sent->begins.data(), type.type,
                                       to.data_ptr(), received->counts.data(), received->begins.data(),
                                       type.type, communicator_, &request),
                        "MPI_Ialltoallv");
                  return request;
                },
                {output},
                [=, target = output] { copy_back(target, to); },
                timeout(options.timeout)});
}

MpiBackend::Work MpiBackend::send(Tensors& tensors, int destination, int tag) {
  const at::Tensor data = dense(only(tensors));
  return start({OpType::SEND,
                str("send to rank ", destination, ", tag ", tag),
                [=, this] {
                  const ElementType type = element_type(data.scalar_type(), false);
                  MPI_Request request = MPI_REQUEST_NULL;
                  check(MPI_Isend(data.data_ptr(), count_of(data.numel(), type), type.type, destination, tag,
                                  communicator_, &request),
                        "MPI_Isend");
                  return request;
                },
                tensors,
                {},
                timeout(kNoTimeout)});
}

MpiBackend::Work MpiBackend::recv(Tensors& tensors, int source, int tag) {
  const at::Tensor tensor = only(tensors);
  const at::Tensor data = place_for(tensor);
  return start({OpType::RECV, str("recv from rank ", source, ", tag ", tag),
                [=, this] {
                  const ElementType type = element_type(data.scalar_type(), false);
                  MPI_Request request = MPI_REQUEST_NULL;
                  check(MPI_Irecv(data.data_ptr(), count_of(data.numel(), type), type.type, source, tag,
                                  communicator_, &request),
                        "MPI_Irecv");
                  return request;
                },
                tensors, [=] { copy_back(tensor, data); }, timeout(kNoTimeout)});
}

MpiBackend::Work MpiBackend::barrier(const c10d::BarrierOptions& options) {
  return start({OpType::BARRIER,
                "barrier",
                [this] {
                  MPI_Request request = MPI_REQUEST_NULL;
                  check(MPI_Ibarrier(communicator_, &request), "MPI_Ibarrier");
                  return request;
                },
                {},
                {},
                timeout(options.timeout)});
}

}  // namespace rondo::mpi

extern "C" void rondo_register_backends(rondo::BackendModule& module) {
  module.add("mpi", [](const rondo::BackendRequest& request) -> c10::intrusive_ptr<c10d::Backend> {
    return c10::make_intrusive<rondo::mpi::MpiBackend>(request);
  });
}
