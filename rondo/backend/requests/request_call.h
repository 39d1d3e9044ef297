#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "rondo/backend/requests/arguments.h"
#include "rondo/backend/requests/dense_tensor.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"
#include "rondo/collective/request.h"

namespace rondo {

// The tensors of an operation. An engine keeps them until the operation has ended.
struct OperationMemory {
  // Holds one tensor, as most operations have, without an allocation.
  using Results = c10::SmallVector<at::Tensor, 1>;
  std::vector<at::Tensor> alive = {};
  std::vector<DenseTensor> copied_back = {};
  Results results = {};
  // Number of lists of equal length in the future's value; 1: one list of tensors.
  std::size_t result_lists = 1;

  // Copies results to the caller's tensors.
  void copy_back() const {
    for (const DenseTensor& tensor : copied_back) tensor.copy_back();
  }
  std::vector<at::Tensor> list_of_results() const { return {results.begin(), results.end()}; }
  // Returns the value of the operation's future.
  c10::IValue value_of_future() const {
    if (result_lists == 1) return {list_of_results()};
    std::vector<std::vector<at::Tensor>> lists(result_lists);
    const std::size_t length = results.size() / lists.size();
    for (std::size_t i = 0; i < results.size(); ++i) lists[i / length].push_back(results[i]);
    return {lists};
  }
};

// A call of c10d as a request to an engine, with its tensors. One thread uses an object. A small operation
// takes about a microsecond, and calls between these functions would be a tenth of that: they are inlined on
// its path.
class RequestCall {
 public:
  // `ranks` is the size of the group.
  RequestCall(int ranks, OperationKind kind, c10d::OpType op) : type(op), alone_(ranks == 1) {
    request.kind = kind;
  }

  // Sets the element type and count from one piece.
  void set_piece(const at::Tensor& piece, bool reduces) {
    const ElementType element = element_type(piece.scalar_type(), name(request.kind), reduces);
    request.type = element.type;
    request.elements = static_cast<std::uint64_t>(piece.numel()) * element.per_element;
  }

  Pieces input(const at::Tensor& tensor) { return whole(tensor, true, false); }
  Pieces output(const at::Tensor& tensor) { return whole(tensor, false, true); }
  Pieces in_place(const at::Tensor& tensor) { return whole(tensor, true, true); }
  // Adds a contiguous tensor of the engine itself, for input or output.
  Pieces own(const at::Tensor& tensor) {
    memory.alive.push_back(tensor);
    return {static_cast<std::byte*>(tensor.data_ptr()), request.bytes(), {}};
  }
  Pieces inputs(const std::vector<at::Tensor>& tensors) { return list(tensors, true, false); }
  Pieces outputs(const std::vector<at::Tensor>& tensors) { return list(tensors, false, true); }

  // Copies the first tensor, which the operation writes, to `copy` at the end.
  void also_to(const at::Tensor& copy) {
    copy_to(memory.alive.empty() ? memory.results.front() : memory.alive.back(), copy);
  }
  void copy_to(const at::Tensor& from, const at::Tensor& copy) {
    memory.copied_back.push_back({from, copy.detach()});
    memory.results.push_back(copy);
  }

  // Returns the first of the caller's tensors; undefined for a barrier.
  at::Tensor first_tensor() const {
    if (!inputs_.empty()) return inputs_.front();
    return memory.results.empty() ? at::Tensor() : memory.results.front();
  }

  // Throws UsageError if outputs overlap; with `of_inputs` also if an output overlaps an input.
  void refuse_overlaps(int rank, int ranks, bool of_inputs) const {
    TouchedTensors touched{{}, memory.results, rank, ranks};
    if (of_inputs) touched.inputs = inputs_;
    check_overlaps(touched, name(request.kind));
  }

  // Returns whether the tensors stay on their device: the only rank of a group copies inputs to outputs with
  // copy_on_device().
  bool on_device() const { return on_device_; }
  // Copies each input to its output on the device, which is the result of any operation of one rank; an
  // operation in place copies nothing. The request then moves no data: it becomes a barrier.
  void copy_on_device() {
    const char* const operation = name(request.kind);
    for (std::size_t i = 0; i < std::min(inputs_.size(), memory.results.size()); ++i) {
      const at::Tensor from = inputs_[i].detach(), to = memory.results[i].detach();
      if (from.numel() != to.numel() || from.scalar_type() != to.scalar_type()) {
        throw UsageError(str(operation, ": the only rank sends ", from.numel(), " elements of ",
                             c10::toString(from.scalar_type()), " to itself, and expects ", to.numel(),
                             " of ", c10::toString(to.scalar_type())));
      }
      const bool same =
          from.is_contiguous() && to.is_contiguous() && from.const_data_ptr() == to.const_data_ptr();
      if (!same) to.copy_(from.reshape(to.sizes()));
    }
    request = {};
    request.kind = OperationKind::barrier;
  }

  c10d::OpType type;
  CollectiveRequest request;
  OperationMemory memory;
  // Whether all ranks pass buffers in the standard form of `request.kind`. False for the reduces of an
  // unequal reduce_scatter, which have an input apart from the output, and no output except on the root.
  bool regular = true;

 private:
  [[gnu::always_inline]] std::byte* add(const at::Tensor& tensor, bool reads, bool writes) {
    if (inputs_.empty() && memory.results.empty())
      on_device_ = alone_ && tensor.defined() && tensor.layout() == at::kStrided && !tensor.is_cpu();
    if (on_device_) {
      (writes ? memory.results : inputs_).push_back(tensor);
      return nullptr;
    }
    const DenseTensor plain = dense(tensor, name(request.kind), reads);
    (writes ? memory.results : inputs_).push_back(tensor);
    // Results need no owner here, since they hold their own memory. Reference counts and allocations dominate
    // the cost of a small operation.
    if (!writes || plain.copy_of.defined()) memory.alive.push_back(plain.data);
    if (writes && plain.copy_of.defined()) memory.copied_back.push_back(plain);
    return plain.bytes();
  }
  // Adds one tensor; several pieces in it are adjacent.
  [[gnu::always_inline]] Pieces whole(const at::Tensor& tensor, bool reads, bool writes) {
    return {add(tensor, reads, writes), request.bytes(), {}};
  }
  Pieces list(const std::vector<at::Tensor>& tensors, bool reads, bool writes) {
    Pieces pieces;
    for (const at::Tensor& tensor : tensors) pieces.list.push_back(add(tensor, reads, writes));
    return pieces;
  }

  bool alone_;              // the group has one rank
  bool on_device_ = false;  // alone, with device tensors, which stay on the device
  OperationMemory::Results inputs_;
};

// Several operations of one backend that were started together and are waited for together. Any thread.
class CoalescedWork final : public c10d::Work {
 public:
  using Parts = std::vector<c10::intrusive_ptr<c10d::Work>>;

  CoalescedWork(int rank, c10d::OpType type, Parts parts)
      : c10d::Work(rank, type), parts_(std::move(parts)) {}

  bool isCompleted() override;
  bool isSuccess() const override;
  // Returns the first error of the parts, in order.
  std::exception_ptr exception() const override;
  // Waits for all parts; `timeout` applies to all of them together.
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override { wait(kNoTimeout); }
  void abort() override;
  // Returns the results of all parts, in order.
  std::vector<at::Tensor> result() override;
  // Returns a future of all results. The future completes with the last part; its error is the first one that
  // occurred.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  const Parts parts_;
};

// An operation that has ended when its call returns.
class EndedWork final : public c10d::Work {
 public:
  EndedWork(int rank, c10d::OpType type, std::vector<at::Tensor> results);
  std::vector<at::Tensor> result() override { return results_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  std::vector<at::Tensor> results_;
};

// A collective that a thread of its engine runs; wait() only waits. Any thread.
class BackgroundWork : public c10d::Work {
 public:
  // Keeps `memory` until the operation has ended.
  BackgroundWork(int rank, c10d::OpType type, std::shared_ptr<const OperationMemory> memory);

  // Copies results to the caller's tensors and completes the future. Called once, by the engine.
  void complete(std::exception_ptr error);

  bool wait(std::chrono::milliseconds timeout) override {
    return Work::wait(std::chrono::ceil<std::chrono::milliseconds>(bounded_duration(timeout)));
  }
  std::vector<at::Tensor> result() override { return results_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  void abort() override {}

 private:
  std::vector<at::Tensor> results_;
  std::shared_ptr<const OperationMemory> memory_;  // until complete()
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// Returns the only part itself, or all parts as one Work; a Work that is complete if there are none.
c10::intrusive_ptr<c10d::Work> coalesce(int rank, c10d::OpType type, CoalescedWork::Parts parts);

}  // namespace rondo
