#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "rondo/backend/requests/request_call.h"

namespace rondo {

// A Work of Gloo in a class that changes one of its functions.
class ForwardedWork : public c10d::Work {
 public:
  explicit ForwardedWork(c10::intrusive_ptr<c10d::Work> work) : work_(std::move(work)) {}

  bool wait(std::chrono::milliseconds timeout) override { return work_->wait(timeout); }
  bool isCompleted() override { return work_->isCompleted(); }
  bool isSuccess() const override { return work_->isSuccess(); }
  std::exception_ptr exception() const override { return work_->exception(); }
  int sourceRank() const override { return work_->sourceRank(); }
  std::vector<at::Tensor> result() override { return work_->result(); }
  void abort() override { work_->abort(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return work_->getFuture(); }

 protected:
  c10d::Work& work() { return *work_; }

 private:
  const c10::intrusive_ptr<c10d::Work> work_;
};

// An operation of Gloo that ends in wait(), which then copies the results to the caller's tensors.
class PassiveHostWork final : public ForwardedWork {
 public:
  PassiveHostWork(c10::intrusive_ptr<c10d::Work> work, std::shared_ptr<const OperationMemory> memory)
      : ForwardedWork(std::move(work)), memory_(std::move(memory)) {}

  bool wait(std::chrono::milliseconds timeout) override {
    const bool done = work().wait(timeout);
    if (done) std::call_once(copied_, [this] { memory_->copy_back(); });
    return done;
  }

 private:
  const std::shared_ptr<const OperationMemory> memory_;
  std::once_flag copied_;
};

// The tensors of one call of Gloo. Tensors that Gloo does not support are replaced by copies on the CPU, and
// results are copied back when the operation ends. One thread uses an object.
class HostCopies {
 public:
  using Work = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<Tensors>;
  enum class Calls { collectives, messages };

  explicit HostCopies(c10d::OpType type, Calls calls = Calls::collectives) : type_(type), calls_(calls) {}

  Tensors inputs(const Tensors& tensors) { return all(tensors, true, false); }
  Tensors outputs(const Tensors& tensors) { return all(tensors, false, true); }
  Tensors in_place(const Tensors& tensors) { return all(tensors, true, true); }
  at::Tensor input(const at::Tensor& tensor) { return one(tensor, true, false); }
  at::Tensor output(const at::Tensor& tensor) { return one(tensor, false, true); }
  TensorLists input_lists(const TensorLists& lists) { return all_lists(lists, true, false); }
  TensorLists output_lists(const TensorLists& lists) { return all_lists(lists, false, true); }

  // Returns `work` if there is nothing to copy back, else a Work that ends when the results of `work` are in
  // the caller's tensors.
  Work of(Work work, int rank) {
    if (memory_->copied_back.empty()) return work;
    auto whole = c10::make_intrusive<BackgroundWork>(rank, type_, memory_);
    work->getFuture()->addCallback([whole](c10::ivalue::Future& on_host) {
      whole->complete(on_host.hasError() ? on_host.exception_ptr() : nullptr);
    });
    return whole;
  }
  // Same as of(), for an operation without a future, which ends in wait().
  Work of_passive(Work work) {
    if (memory_->copied_back.empty()) return work;
    return c10::make_intrusive<PassiveHostWork>(std::move(work), memory_);
  }

 private:
  // Returns whether Gloo supports a tensor that dense() would copy or reject.
  bool supported(const at::Tensor& tensor) const {
    if (!tensor.defined()) return true;
    return tensor.is_cuda() ? calls_ == Calls::collectives : tensor.is_cpu() && tensor.is_sparse();
  }
  at::Tensor one(const at::Tensor& tensor, bool reads, bool writes) {
    if (writes) memory_->results.push_back(tensor);
    if (supported(tensor)) return tensor;
    const DenseTensor on_host = dense(tensor, c10d::opTypeToString(type_).c_str(), reads);
    if (writes && on_host.copy_of.defined()) memory_->copied_back.push_back(on_host);
    return on_host.data;
  }
  Tensors all(const Tensors& tensors, bool reads, bool writes) {
    Tensors host;
    for (const at::Tensor& tensor : tensors) host.push_back(one(tensor, reads, writes));
    return host;
  }
  TensorLists all_lists(const TensorLists& lists, bool reads, bool writes) {
    TensorLists host;
    for (const Tensors& list : lists) host.push_back(all(list, reads, writes));
    if (writes && !lists.empty()) memory_->result_lists = lists.size();
    return host;
  }

  c10d::OpType type_;
  Calls calls_;
  std::shared_ptr<OperationMemory> memory_ = std::make_shared<OperationMemory>();
};

// ProcessGroupGloo for dense tensors with any strides on any device. Tensors that Gloo does not support are
// copied to the CPU and back: CUDA tensors in messages, tensors of other accelerators and tensors with gaps
// in all calls.
class HostGloo : public c10d::ProcessGroupGloo {
 public:
  using ProcessGroupGloo::ProcessGroupGloo;
  using Work = HostCopies::Work;
  using Tensors = HostCopies::Tensors;
  using TensorLists = HostCopies::TensorLists;

  Work broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    HostCopies copies(c10d::OpType::BROADCAST);
    Tensors host = copies.in_place(tensors);
    return copies.of(ProcessGroupGloo::broadcast(host, options), getRank());
  }
  Work allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    HostCopies copies(c10d::OpType::ALLREDUCE);
    Tensors host = copies.in_place(tensors);
    return copies.of(ProcessGroupGloo::allreduce(host, options), getRank());
  }
  Work allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    HostCopies copies(c10d::OpType::ALLREDUCE_COALESCED);
    Tensors host = copies.in_place(tensors);
    return copies.of(ProcessGroupGloo::allreduce_coalesced(host, options), getRank());
  }
  Work reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    HostCopies copies(c10d::OpType::REDUCE);
    Tensors host = copies.in_place(tensors);
    return copies.of(ProcessGroupGloo::reduce(host, options), getRank());
  }
  Work allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    HostCopies copies(c10d::OpType::ALLGATHER);
    TensorLists to = copies.output_lists(outputs);
    Tensors from = copies.inputs(inputs);
    return copies.of(ProcessGroupGloo::allgather(to, from, options), getRank());
  }
  Work _allgather_base(at::Tensor& output, at::Tensor& input,
                       const c10d::AllgatherOptions& options) override {
    HostCopies copies(c10d::OpType::_ALLGATHER_BASE);
    at::Tensor to = copies.output(output), from = copies.input(input);
    return copies.of(ProcessGroupGloo::_allgather_base(to, from, options), getRank());
  }
  Work allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                           const c10d::AllgatherOptions& options) override {
    HostCopies copies(c10d::OpType::ALLGATHER_COALESCED);
    TensorLists to = copies.output_lists(outputs);
    Tensors from = copies.inputs(inputs);
    return copies.of(ProcessGroupGloo::allgather_coalesced(to, from, options), getRank());
  }
  Work allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                       const c10d::AllgatherOptions& options) override {
    HostCopies copies(c10d::OpType::ALLGATHER_COALESCED);
    Tensors to = copies.outputs(outputs), from = copies.inputs(inputs);
    return copies.of(ProcessGroupGloo::allgather_into_tensor_coalesced(to, from, options), getRank());
  }
  Work gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override {
    HostCopies copies(c10d::OpType::GATHER);
    TensorLists to = copies.output_lists(outputs);
    Tensors from = copies.inputs(inputs);
    return copies.of(ProcessGroupGloo::gather(to, from, options), getRank());
  }
  Work scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) override {
    HostCopies copies(c10d::OpType::SCATTER);
    Tensors to = copies.outputs(outputs);
    TensorLists from = copies.input_lists(inputs);
    return copies.of(ProcessGroupGloo::scatter(to, from, options), getRank());
  }
  Work reduce_scatter(Tensors& outputs, TensorLists& inputs,
                      const c10d::ReduceScatterOptions& options) override {
    HostCopies copies(c10d::OpType::REDUCE_SCATTER);
    Tensors to = copies.outputs(outputs);
    TensorLists from = copies.input_lists(inputs);
    return copies.of_passive(ProcessGroupGloo::reduce_scatter(to, from, options));
  }
  Work _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                            const c10d::ReduceScatterOptions& options) override {
    HostCopies copies(c10d::OpType::_REDUCE_SCATTER_BASE);
    at::Tensor to = copies.output(output), from = copies.input(input);
    return copies.of_passive(ProcessGroupGloo::_reduce_scatter_base(to, from, options));
  }
  Work reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                       const c10d::ReduceScatterOptions& options) override {
    HostCopies copies(c10d::OpType::REDUCE_SCATTER);
    Tensors to = copies.outputs(outputs), from = copies.inputs(inputs);
    return copies.of_passive(ProcessGroupGloo::reduce_scatter_tensor_coalesced(to, from, options));
  }
  Work alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_counts,
                     std::vector<std::int64_t>& input_counts, const c10d::AllToAllOptions& options) override {
    HostCopies copies(c10d::OpType::ALLTOALL_BASE);
    at::Tensor to = copies.output(output), from = copies.input(input);
    return copies.of(ProcessGroupGloo::alltoall_base(to, from, output_counts, input_counts, options),
                     getRank());
  }
  Work alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override {
    HostCopies copies(c10d::OpType::ALLTOALL);
    Tensors to = copies.outputs(outputs), from = copies.inputs(inputs);
    return copies.of(ProcessGroupGloo::alltoall(to, from, options), getRank());
  }
  Work send(Tensors& tensors, int destination, int tag) override {
    HostCopies copies(c10d::OpType::SEND, HostCopies::Calls::messages);
    Tensors host = copies.inputs(tensors);
    return ProcessGroupGloo::send(host, destination, tag);
  }
  Work recv(Tensors& tensors, int source, int tag) override {
    HostCopies copies(c10d::OpType::RECV, HostCopies::Calls::messages);
    Tensors host = copies.outputs(tensors);
    return copies.of_passive(ProcessGroupGloo::recv(host, source, tag));
  }
  Work recvAnysource(Tensors& tensors, int tag) override {
    HostCopies copies(c10d::OpType::RECVANYSOURCE, HostCopies::Calls::messages);
    Tensors host = copies.outputs(tensors);
    return copies.of_passive(ProcessGroupGloo::recvAnysource(host, tag));
  }
};

}  // namespace rondo
