#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "rondo/backend/engine/arguments.h"
#include "rondo/backend/engine/dense_tensor.h"
#include "rondo/backend/engine/overlap.h"
#include "rondo/backend/native/call_arguments.h"
#include "rondo/backend/native/native_operation.h"
#include "rondo/backend/native/native_work.h"
#include "rondo/backend/native/planned_collectives.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {

// Starts an operation. An error of its first step is reported by its Work.
template <class Function>
[[gnu::always_inline]] inline void in_operation(const NativeOperation& operation, Function start) {
  try {
    start();
  } catch (const std::exception&) {
    if (!operation.over()) throw;
  }
}

// A request to the engine with the tensors that it touches. One thread uses an object. A small operation
// takes about a microsecond, of which calls between these functions would be a tenth: they are inlined where
// they are on its way.
class NativeCall {
 public:
  NativeCall(const shared_memory::Engine& engine, OperationKind kind, c10d::OpType type)
      : type_(type), alone_(engine.size() == 1) {
    request_.kind = kind;
  }

  CollectiveRequest& request() { return request_; }

  // Sets the element type and count from one piece.
  void set_piece(const at::Tensor& piece, bool reduces) {
    const ElementType element = element_type(piece.scalar_type(), name(request_.kind), reduces);
    request_.type = element.type;
    request_.elements = static_cast<std::uint64_t>(piece.numel()) * element.per_element;
  }

  Pieces input(const at::Tensor& tensor) { return whole(tensor, true, false); }
  Pieces output(const at::Tensor& tensor) { return whole(tensor, false, true); }
  Pieces in_place(const at::Tensor& tensor) { return whole(tensor, true, true); }
  // A contiguous tensor of this backend's own, whether the operation reads or writes it.
  Pieces own(const at::Tensor& tensor) {
    memory_.alive.push_back(tensor);
    return {static_cast<std::byte*>(tensor.data_ptr()), request_.bytes(), {}};
  }
  Pieces inputs(const std::vector<at::Tensor>& tensors) { return list(tensors, true, false); }
  Pieces outputs(const std::vector<at::Tensor>& tensors) { return list(tensors, false, true); }

  // Copies the first tensor, which the operation writes, to `copy` at the end.
  void also_to(const at::Tensor& copy) {
    copy_to(memory_.alive.empty() ? memory_.results.front() : memory_.alive.back(), copy);
  }
  void copy_to(const at::Tensor& from, const at::Tensor& copy) {
    memory_.copied_back.push_back({from, copy.detach()});
    memory_.results.push_back(copy);
  }
  // The future gives the results as so many lists of equal length.
  void results_in_lists(std::size_t lists) { memory_.result_lists = lists; }

  // Throws UsageError where the tensors overlap. `planned` may be null; a plan is run to its end where the
  // caller waits anyway.
  [[gnu::always_inline]] c10::intrusive_ptr<c10d::Work> start(
      const std::shared_ptr<shared_memory::Engine>& engine, Duration timeout,
      const std::shared_ptr<PlannedCollectives>& planned = nullptr, bool caller_waits = false) {
    check_overlaps({inputs_, memory_.results, engine->rank(), engine->size()}, name(request_.kind));
    if (on_device_) copy_on_device();
    NativeWork::Pending pending;
    pending.operation = std::make_shared<NativeOperation>(std::move(memory_));
    pending.timeout = timeout;
    const Deadline deadline = Deadline::after(timeout);
    std::optional<std::uint64_t> number;
    if (planned != nullptr) number = planned->start(request_, pending.operation, deadline, caller_waits);
    if (number) {
      pending.plans = planned;
      pending.planned = *number;
      if (caller_waits) planned->wait(*number, Deadline::never());
    } else {
      in_operation(*pending.operation, [&] {
        pending.sequence = engine->start(std::move(request_), pending.operation, deadline);
      });
    }
    return c10::make_intrusive<NativeWork>(engine, type_, std::move(pending));
  }

 private:
  [[gnu::always_inline]] std::byte* add(const at::Tensor& tensor, bool reads, bool writes) {
    if (inputs_.empty() && memory_.results.empty())
      on_device_ = alone_ && tensor.defined() && tensor.layout() == at::kStrided && !tensor.is_cpu();
    if (on_device_) {
      (writes ? memory_.results : inputs_).push_back(tensor);
      return nullptr;
    }
    const DenseTensor plain = dense(tensor, name(request_.kind), reads);
    (writes ? memory_.results : inputs_).push_back(tensor);
    // Results stay alive by themselves. What a small operation costs is counting references and allocating.
    if (!writes || plain.copy_of.defined()) memory_.alive.push_back(plain.data);
    if (writes && plain.copy_of.defined()) memory_.copied_back.push_back(plain);
    return plain.bytes();
  }
  // One tensor; where it holds several pieces they lie side by side.
  [[gnu::always_inline]] Pieces whole(const at::Tensor& tensor, bool reads, bool writes) {
    return {add(tensor, reads, writes), request_.bytes(), {}};
  }
  Pieces list(const std::vector<at::Tensor>& tensors, bool reads, bool writes) {
    Pieces pieces;
    for (const at::Tensor& tensor : tensors) pieces.list.push_back(add(tensor, reads, writes));
    return pieces;
  }

  // Copies each input to its output on the device, which is the result of any operation of one rank; an
  // operation in place copies nothing. The rest of the operation then moves no data.
  void copy_on_device() {
    const char* const operation = name(request_.kind);
    for (std::size_t i = 0; i < std::min(inputs_.size(), memory_.results.size()); ++i) {
      const at::Tensor from = inputs_[i].detach(), to = memory_.results[i].detach();
      if (from.numel() != to.numel() || from.scalar_type() != to.scalar_type()) {
        throw UsageError(str(operation, ": the only rank sends ", from.numel(), " elements of ",
                             c10::toString(from.scalar_type()), " to itself, and expects ", to.numel(),
                             " of ", c10::toString(to.scalar_type())));
      }
      const bool same =
          from.is_contiguous() && to.is_contiguous() && from.const_data_ptr() == to.const_data_ptr();
      if (!same) to.copy_(from.reshape(to.sizes()));
    }
    request_ = {};
    request_.kind = OperationKind::barrier;
  }

  c10d::OpType type_;
  bool alone_;              // the group has one rank
  bool on_device_ = false;  // alone, with tensors of a device, which stay there
  CollectiveRequest request_;
  NativeOperation::Results inputs_;
  NativeOperation::Memory memory_;
};

}  // namespace rondo
