#include "rondo/profile/counting_backend.h"

#include <numeric>

namespace rondo {
namespace {

class DoneWork final : public c10d::Work {
 public:
  bool isCompleted() override { return true; }
  bool isSuccess() const override { return true; }
  bool wait(std::chrono::milliseconds) override { return true; }
};

}  // namespace

c10::intrusive_ptr<c10d::Work> CountingBackend::allreduce(std::vector<at::Tensor>& tensors,
                                                          const c10d::AllreduceOptions&) {
  ++messages_;
  for (const at::Tensor& tensor : tensors) bytes_ += tensor.nbytes();
  return c10::make_intrusive<DoneWork>();
}

c10::intrusive_ptr<c10d::Work> CountingBackend::allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                                          std::vector<at::Tensor>& inputs,
                                                          const c10d::AllgatherOptions&) {
  ++messages_;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    bytes_ += inputs[i].nbytes();
    for (at::Tensor& output : outputs[i]) output.copy_(inputs[i]);
  }
  return c10::make_intrusive<DoneWork>();
}

c10::intrusive_ptr<c10d::Work> CountingBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                              std::vector<std::int64_t>&,
                                                              std::vector<std::int64_t>&,
                                                              const c10d::AllToAllOptions&) {
  ++messages_;
  bytes_ += input.nbytes();
  output.zero_();
  return c10::make_intrusive<DoneWork>();
}

c10::intrusive_ptr<c10d::Work> CountingBackend::send(std::vector<at::Tensor>& tensors, int, int) {
  ++messages_;
  for (const at::Tensor& tensor : tensors) bytes_ += tensor.nbytes();
  return c10::make_intrusive<DoneWork>();
}

c10::intrusive_ptr<c10d::Work> CountingBackend::recv(std::vector<at::Tensor>& tensors, int, int) {
  for (at::Tensor& tensor : tensors) tensor.zero_();
  return c10::make_intrusive<DoneWork>();
}

Group counting_group(const c10::intrusive_ptr<CountingBackend>& backend) {
  std::vector<int> ranks(static_cast<std::size_t>(backend->getSize()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return Group("counting", std::move(ranks), 0, c10::intrusive_ptr<c10d::Backend>(backend), {});
}

}  // namespace rondo
