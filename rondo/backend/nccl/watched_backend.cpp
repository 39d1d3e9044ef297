#include "rondo/backend/nccl/watched_backend.h"

#include <ATen/core/Tensor.h>

#include <utility>

#include "rondo/backend/nccl/factory.h"

namespace rondo {
namespace {

// The Work of the engine; it throws the failure that caused an error.
class WatchedWork final : public c10d::Work {
 public:
  WatchedWork(c10d::OpType type, int rank, c10::intrusive_ptr<c10d::Work> inner, c10::Device device,
              std::shared_ptr<DeviceWatch> watch, std::shared_ptr<WatchedGroup> group,
              std::shared_ptr<DeviceOperation> operation)
      : c10d::Work(rank, type),
        inner_(std::move(inner)),
        device_(device),
        watch_(std::move(watch)),
        group_(std::move(group)),
        operation_(std::move(operation)) {}

  bool isCompleted() override { return inner_->isCompleted(); }
  bool isSuccess() const override { return inner_->isSuccess(); }
  std::exception_ptr exception() const override { return inner_->exception(); }
  int sourceRank() const override { return inner_->sourceRank(); }
  std::vector<at::Tensor> result() override { return inner_->result(); }
  bool wait(std::chrono::milliseconds timeout) override {
    bool is_done = false;
    try {
      is_done = inner_->wait(timeout);
    } catch (const std::exception&) {
      watch_->throw_cause_of(*group_, std::current_exception());
    }
    operation_->note_wait(device_);
    watch_->throw_if_failed(*group_);
    return is_done;
  }
  void synchronize() override { wait(kNoTimeout); }
  void blockCurrentStream() override { wait(kNoTimeout); }
  void abort() override { inner_->abort(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return inner_->getFuture(); }
  float getDuration() const override { return inner_->getDuration(); }
  std::uint64_t getSequencenumber() const override { return inner_->getSequencenumber(); }

 private:
  const c10::intrusive_ptr<c10d::Work> inner_;
  const c10::Device device_;
  const std::shared_ptr<DeviceWatch> watch_;
  const std::shared_ptr<WatchedGroup> group_;
  const std::shared_ptr<DeviceOperation> operation_;
};

}  // namespace

WatchedBackend::WatchedBackend(const BackendRequest& request, std::shared_ptr<DeviceWatch> watch,
                               const c10::intrusive_ptr<c10d::Backend>& device,
                               const c10::intrusive_ptr<c10d::Backend>& control)
    : c10d::Backend(request.rank, request.size),
      watch_(std::move(watch)),
      device_(device),
      group_(watch_->add(request, device, control)),
      timeout_(request.timeout) {}

WatchedBackend::~WatchedBackend() { watch_->remove(group_); }

void WatchedBackend::throw_if_failed() { watch_->throw_if_failed(*group_); }

bool WatchedBackend::has_lost_results() { return watch_->has_lost_results(); }

// DeviceWatch ends operations at an earlier deadline than the engine, because its errors name ranks.
void WatchedBackend::setTimeout(std::chrono::milliseconds timeout) {
  timeout_ = bounded_duration(timeout);
  device_->setTimeout(timeout + kDeviceGrace);
}

// Removes the group afterwards: a peer may be lost during the shutdown.
void WatchedBackend::shutdown() {
  device_->shutdown();
  watch_->remove(group_);
}

template <class Start>
WatchedBackend::Work WatchedBackend::under_watch(std::string name, c10::Device device, std::vector<int> peers,
                                                 Duration timeout, Start start) {
  const auto operation = watch_->begin(*group_, std::move(name), std::move(peers), timeout);
  Work inner;
  try {
    inner = start();
  } catch (const std::exception&) {
    operation->cancel();
    watch_->throw_cause_of(*group_, std::current_exception());
  }
  if (!inner) {
    operation->cancel();
    return inner;
  }
  operation->set_work(inner);
  const c10d::OpType type = inner->retrieveOpType();
  return c10::make_intrusive<WatchedWork>(type, getRank(), std::move(inner), device, watch_, group_,
                                          operation);
}

template <class Start>
WatchedBackend::Work WatchedBackend::started(const char* name, const at::Tensor& tensor,
                                             std::chrono::milliseconds timeout, Start start) {
  if (coalescing_) {
    coalescing_->device = tensor.device();
    return start();
  }
  const bool unset = timeout == c10d::kUnsetTimeout || timeout == kNoTimeout;
  return under_watch(name, tensor.device(), {}, unset ? timeout_.load() : bounded_duration(timeout),
                     std::move(start));
}

template <class Start>
WatchedBackend::Work WatchedBackend::message(const char* name, const at::Tensor& tensor, int peer,
                                             Start start) {
  if (coalescing_) {
    coalescing_->device = tensor.device();
    coalescing_->peers.push_back(peer);
    return start();
  }
  return under_watch(name, tensor.device(), {peer}, timeout_.load(), std::move(start));
}

void WatchedBackend::startCoalescing() {
  throw_if_failed();
  device_->startCoalescing();
  coalescing_.emplace();
}

WatchedBackend::Work WatchedBackend::endCoalescing() {
  const Coalesced all = coalescing_.value_or(Coalesced());
  coalescing_.reset();
  if (!all.device) return device_->endCoalescing();
  return under_watch("a group of messages", *all.device, all.peers, timeout_.load(),
                     [&] { return device_->endCoalescing(); });
}

WatchedBackend::Work WatchedBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  return started("broadcast", tensors.front(), options.timeout,
                 [&] { return device_->broadcast(tensors, options); });
}

WatchedBackend::Work WatchedBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  return started("all_reduce", tensors.front(), options.timeout,
                 [&] { return device_->allreduce(tensors, options); });
}

WatchedBackend::Work WatchedBackend::allreduce_coalesced(Tensors& tensors,
                                                         const c10d::AllreduceCoalescedOptions& options) {
  return started("all_reduce_coalesced", tensors.front(), options.timeout,
                 [&] { return device_->allreduce_coalesced(tensors, options); });
}

WatchedBackend::Work WatchedBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  return started("reduce", tensors.front(), options.timeout,
                 [&] { return device_->reduce(tensors, options); });
}

WatchedBackend::Work WatchedBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                               const c10d::AllgatherOptions& options) {
  return started("all_gather", inputs.front(), options.timeout,
                 [&] { return device_->allgather(outputs, inputs, options); });
}

WatchedBackend::Work WatchedBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                     const c10d::AllgatherOptions& options) {
  return started("all_gather_into_tensor", input, options.timeout,
                 [&] { return device_->_allgather_base(output, input, options); });
}

WatchedBackend::Work WatchedBackend::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                                         const c10d::AllgatherOptions& options) {
  return started("all_gather_coalesced", inputs.front(), options.timeout,
                 [&] { return device_->allgather_coalesced(outputs, inputs, options); });
}

WatchedBackend::Work WatchedBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                     const c10d::AllgatherOptions& options) {
  return started("all_gather_into_tensor_coalesced", inputs.front(), options.timeout,
                 [&] { return device_->allgather_into_tensor_coalesced(outputs, inputs, options); });
}

WatchedBackend::Work WatchedBackend::gather(TensorLists& outputs, Tensors& inputs,
                                            const c10d::GatherOptions& options) {
  return started("gather", inputs.front(), options.timeout,
                 [&] { return device_->gather(outputs, inputs, options); });
}

WatchedBackend::Work WatchedBackend::scatter(Tensors& outputs, TensorLists& inputs,
                                             const c10d::ScatterOptions& options) {
  return started("scatter", outputs.front(), options.timeout,
                 [&] { return device_->scatter(outputs, inputs, options); });
}

WatchedBackend::Work WatchedBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                    const c10d::ReduceScatterOptions& options) {
  return started("reduce_scatter", outputs.front(), options.timeout,
                 [&] { return device_->reduce_scatter(outputs, inputs, options); });
}

WatchedBackend::Work WatchedBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                          const c10d::ReduceScatterOptions& options) {
  return started("reduce_scatter_tensor", output, options.timeout,
                 [&] { return device_->_reduce_scatter_base(output, input, options); });
}

WatchedBackend::Work WatchedBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  return started("reduce_scatter_tensor_coalesced", outputs.front(), options.timeout,
                 [&] { return device_->reduce_scatter_tensor_coalesced(outputs, inputs, options); });
}

WatchedBackend::Work WatchedBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                   std::vector<std::int64_t>& output_splits,
                                                   std::vector<std::int64_t>& input_splits,
                                                   const c10d::AllToAllOptions& options) {
  return started("all_to_all", output, options.timeout,
                 [&] { return device_->alltoall_base(output, input, output_splits, input_splits, options); });
}

WatchedBackend::Work WatchedBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                              const c10d::AllToAllOptions& options) {
  return started("all_to_all", outputs.front(), options.timeout,
                 [&] { return device_->alltoall(outputs, inputs, options); });
}

WatchedBackend::Work WatchedBackend::send(Tensors& tensors, int destination, int tag) {
  return message("send", tensors.front(), destination,
                 [&] { return device_->send(tensors, destination, tag); });
}

WatchedBackend::Work WatchedBackend::recv(Tensors& tensors, int source, int tag) {
  return message("recv", tensors.front(), source, [&] { return device_->recv(tensors, source, tag); });
}

WatchedBackend::Work WatchedBackend::recvAnysource(Tensors& tensors, int tag) {
  return started("recv from any rank", tensors.front(), kNoTimeout,
                 [&] { return device_->recvAnysource(tensors, tag); });
}

// A CombinedBackend runs its barriers on the CPU.
WatchedBackend::Work WatchedBackend::barrier(const c10d::BarrierOptions& options) {
  throw_if_failed();
  return device_->barrier(options);
}

}  // namespace rondo
