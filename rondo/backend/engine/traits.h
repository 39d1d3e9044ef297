#pragma once

#include <ATen/core/Tensor.h>

#include <exception>
#include <map>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

namespace rondo {

// What an engine can do. Whoever wants to know asks Group::traits(), and looks neither at the engine's type
// nor at its name. The values below are the default: what rondo assumes of a c10d::Backend of which it knows
// nothing.
struct EngineTraits {
  // An operation goes on in the engine's own threads while its ranks compute. Where this is false, it goes on
  // only inside calls of the ranks, so that it is best started when its data is ready and never early.
  bool progresses_in_background = true;
  // Peers read and write CPU tensors of 64 KiB and more where they lie, so that gathering gradients in a
  // bucket costs more than it gains.
  bool registered_memory = false;
  // All ranks can see one tensor of one of them: ExtendedBackend::publish and published.
  bool parameters_in_place = false;
  // Floating-point sums are added in the order of ranks 0, 1, 2, ... on every layout of hosts. Of what is
  // registered with a factory: the factory obeys BackendRequest::deterministic.
  bool deterministic = false;
  // It has alltoall_base with parts of any sizes. c10d::Backend cannot be asked, and is found out when a
  // communicator is made (make_communicator); without it all_to_all_single goes by broadcasts.
  bool all_to_all = true;
  bool cpu_tensors = true;      // it takes tensors on the CPU
  bool device_tensors = false;  // it takes tensors on an accelerator
  // Messages between two ranks are matched by their tags. Where this is false, they are matched by the order
  // in which both ranks start them, and opposite messages belong into one exchange (start_exchange).
  bool honours_tags = true;

  // Where small messages of the strategies have to lie.
  c10::DeviceType control_device() const { return cpu_tensors ? at::kCPU : at::kCUDA; }
  // Whether both can do the same.
  bool operator==(const EngineTraits&) const = default;
};

// What an engine may offer beyond c10d::Backend; every method but traits() has a default that any engine
// satisfies. An engine of anybody may derive from it: nothing of rondo has to be linked for that.
class ExtendedBackend : public c10d::Backend {
 public:
  using c10d::Backend::Backend;

  // Of this communicator; they stand above what was registered with its factory.
  virtual EngineTraits traits() const = 0;

  // all_reduce in place, which has ended when it returns: the shortest way, without a c10d::Work. Any tensor.
  virtual void all_reduce_now(const at::Tensor& tensor, const c10d::ReduceOp& op) {
    // What is written to a detached sparse tensor does not reach the tensor.
    std::vector<at::Tensor> tensors{tensor.is_sparse() ? tensor : tensor.detach()};
    c10d::AllreduceOptions options;
    options.reduceOp = op;
    allreduce(tensors, options)->wait();
  }

  // Lets the peers use the memory of a tensor of allocateTensor() without asking, until the engine is
  // destroyed, which keeps the tensor until then. Returns what a peer gives to published(); nothing where the
  // engine has no such memory.
  virtual std::optional<std::uint64_t> publish(const at::Tensor& /*tensor*/) { return {}; }
  // Where the memory that `rank` published lies in this process; valid as long as the engine lives.
  virtual void* published(int /*rank*/, std::uint64_t /*place*/) { return nullptr; }

  // What the engine remembers from operation to operation and a run needs to go on bit for bit (a codec's
  // error feedback), of this rank, by name. While no operation is under way; on all ranks or none.
  virtual std::map<std::string, at::Tensor> memory() { return {}; }
  // Goes on from what memory() gave on this rank. Empty when all of it is used; otherwise why it is not ("is
  // of codec int8 ..., and this engine has ..."), and the engine begins anew. On all ranks or none.
  virtual std::string restore_memory(const std::map<std::string, at::Tensor>& memory) {
    return memory.empty() ? std::string() : "is of an engine with a codec, and this one has none";
  }

  // Every later call fails, saying that the group was shut down. Peers are not disturbed.
  virtual void close() {}

  // Returns the exception to report in place of an error that a caller found by itself: another rank's
  // failure where one came before and this is its consequence, else the error. Any thread; blocks for some
  // seconds at most.
  virtual std::exception_ptr cause_of(const std::exception_ptr& error) noexcept { return error; }
};

// The interface above where `backend` has it, else null.
inline ExtendedBackend* extended(const c10::intrusive_ptr<c10d::Backend>& backend) {
  return dynamic_cast<ExtendedBackend*>(backend.get());
}

// What the engine itself answers, else `otherwise`.
inline EngineTraits traits_of(const c10::intrusive_ptr<c10d::Backend>& backend,
                              const EngineTraits& otherwise = {}) {
  const ExtendedBackend* const engine = extended(backend);
  return engine != nullptr ? engine->traits() : otherwise;
}

}  // namespace rondo
