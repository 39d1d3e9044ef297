#pragma once

#include <ATen/core/Tensor.h>

#include <exception>
#include <map>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

namespace rondo {

// Abilities of an engine. Code asks Group::traits() instead of examining the engine's type or name. The
// defaults are rondo's assumptions about an unknown c10d::Backend.
struct EngineTraits {
  // Operations progress in the engine's own threads while the ranks compute. If false, they progress only
  // inside calls of the ranks, so operations should be started when all ranks have their data, and not
  // earlier.
  bool progresses_in_background = true;
  // Peers read and write CPU tensors of 64 KiB and more in place, so copying gradients into a bucket costs
  // more than it saves.
  bool registered_memory = false;
  // All ranks can access a tensor of one rank: ExtendedBackend::publish and published.
  bool parameters_in_place = false;
  // Floating-point sums are added in the order of ranks 0, 1, 2, ... on every layout of hosts. In the traits
  // registered with a factory: the factory obeys BackendRequest::deterministic.
  bool deterministic = false;
  // The engine has alltoall_base with parts of any sizes. c10d::Backend has no query for it, so
  // make_communicator tests for it; without it all_to_all_single uses broadcasts.
  bool all_to_all = true;
  bool cpu_tensors = true;      // takes tensors on the CPU
  bool device_tensors = false;  // takes tensors on an accelerator
  // Messages between two ranks are matched by their tags. If false, they are matched by the order in which
  // both ranks start them, and opposite messages must be part of one exchange (start_exchange).
  bool honours_tags = true;

  // Device for the strategies' small control messages.
  c10::DeviceType control_device() const { return cpu_tensors ? at::kCPU : at::kCUDA; }
  // Compares all abilities.
  bool operator==(const EngineTraits&) const = default;
};

// A c10d::Backend with optional extensions; every method but traits() has a default that suits any engine. A
// third-party engine may derive from it without linking rondo.
class ExtendedBackend : public c10d::Backend {
 public:
  using c10d::Backend::Backend;

  // Returns the traits of this communicator; they override those registered with its factory.
  virtual EngineTraits traits() const = 0;

  // Runs all_reduce in place and returns when it is complete, without the cost of a c10d::Work. Takes any
  // tensor.
  virtual void all_reduce_now(const at::Tensor& tensor, const c10d::ReduceOp& op) {
    // Writes to a detached sparse tensor do not reach the original.
    std::vector<at::Tensor> tensors{tensor.is_sparse() ? tensor : tensor.detach()};
    c10d::AllreduceOptions options;
    options.reduceOp = op;
    allreduce(tensors, options)->wait();
  }

  // Gives the peers direct access to the memory of a tensor of allocateTensor() until the engine is
  // destroyed; the engine keeps the tensor until then. Returns the handle that a peer passes to published(),
  // or nothing if the engine has no such memory.
  virtual std::optional<std::uint64_t> publish(const at::Tensor& /*tensor*/) { return {}; }
  // Returns the address in this process of memory that `rank` published; valid during the engine's lifetime.
  virtual void* published(int /*rank*/, std::uint64_t /*place*/) { return nullptr; }

  // Returns this rank's state that the engine keeps between operations and that a run needs to resume bit for
  // bit (a codec's error feedback), by name. Call it on all ranks or none, with no operation in flight.
  virtual std::map<std::string, at::Tensor> memory() { return {}; }
  // Restores the result of memory() on this rank. Returns an empty string if all of it is used; otherwise the
  // reason ("is of codec int8 ..., and this engine has ..."), and the engine starts without state. Call it on
  // all ranks or none.
  virtual std::string restore_memory(const std::map<std::string, at::Tensor>& memory) {
    return memory.empty() ? std::string() : "is of an engine with a codec, and this one has none";
  }

  // Makes every later call fail with the message that the group was shut down. Does not disturb peers.
  virtual void close() {}

  // Returns the exception to report in place of an error that a caller detected: another rank's failure if
  // one came before and this error is its consequence, else the error. Any thread; blocks for some seconds at
  // most.
  virtual std::exception_ptr cause_of(const std::exception_ptr& error) noexcept { return error; }
};

// Returns `backend` as an ExtendedBackend, or null if it is none.
inline ExtendedBackend* extended(const c10::intrusive_ptr<c10d::Backend>& backend) {
  return dynamic_cast<ExtendedBackend*>(backend.get());
}

// Returns the engine's own traits, or `otherwise` if it is not an ExtendedBackend.
inline EngineTraits traits_of(const c10::intrusive_ptr<c10d::Backend>& backend,
                              const EngineTraits& otherwise = {}) {
  const ExtendedBackend* const engine = extended(backend);
  return engine != nullptr ? engine->traits() : otherwise;
}

}  // namespace rondo
