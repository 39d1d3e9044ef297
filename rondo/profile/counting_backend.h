#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <cstdint>

#include "rondo/backend/group.h"

namespace rondo {

// An engine without peers: it adds nothing up, takes every other rank for one with the same numbers, and
// counts what was to be given. What one rank of a group computes can be measured with it in one process;
// values are wrong.
class CountingBackend final : public c10d::Backend {
 public:
  explicit CountingBackend(int ranks) : Backend(0, ranks) {}

  const std::string getBackendName() const override { return "counting"; }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& output, at::Tensor& input,
                                               std::vector<std::int64_t>& output_sizes,
                                               std::vector<std::int64_t>& input_sizes,
                                               const c10d::AllToAllOptions& options) override;
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int to, int tag) override;
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int from, int tag) override;

  int messages() const { return messages_; }
  std::uint64_t bytes() const { return bytes_; }
  void forget() { messages_ = 0, bytes_ = 0; }

 private:
  int messages_ = 0;
  std::uint64_t bytes_ = 0;
};

// A group of so many ranks of which this process is the first, over that engine.
Group counting_group(const c10::intrusive_ptr<CountingBackend>& backend);

}  // namespace rondo
