// A custom communication engine in a shared module: every rank writes its bytes to the store and reads the
// others'. Slow, but complete enough for data-parallel training.
//   rondo train --data texts/ --nproc-per-node 2 --backend build/release/lib/store_backend.so:store
#include <ATen/ops/from_blob.h>
#include <torch/types.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "rondo/extend/engine.h"

namespace {

// A work that is already complete: every operation finishes within its call.
class FinishedWork final : public c10d::Work {
 public:
  using c10d::Work::Work;
  bool isCompleted() override { return true; }
  bool wait(std::chrono::milliseconds) override { return true; }
};

class StoreBackend final : public c10d::Backend {
 public:
  explicit StoreBackend(const rondo::BackendRequest& request)
      : c10d::Backend(request.rank, request.size), store_(request.store) {}
  const std::string getBackendName() const override { return "store"; }

  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    tensors.at(0).copy_(exchange(tensors.at(0)).at(static_cast<std::size_t>(options.rootRank)));
    return done(c10d::OpType::BROADCAST);
  }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override {
    for (at::Tensor& tensor : tensors) {
      const at::Tensor all = at::stack(exchange(tensor));
      const auto op = options.reduceOp;
      TORCH_CHECK(op == c10d::ReduceOp::SUM || op == c10d::ReduceOp::MAX || op == c10d::ReduceOp::MIN,
                  "the store backend reduces with SUM, MAX and MIN only");
      tensor.copy_(op == c10d::ReduceOp::SUM   ? all.sum(0)
                   : op == c10d::ReduceOp::MAX ? all.amax(0)
                                               : all.amin(0));
    }
    return done(c10d::OpType::ALLREDUCE);
  }
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions&) override {
    const std::vector<at::Tensor> all = exchange(inputs.at(0));
    for (std::size_t rank = 0; rank < all.size(); ++rank) outputs.at(0).at(rank).copy_(all[rank]);
    return done(c10d::OpType::ALLGATHER);
  }
  c10::intrusive_ptr<c10d::Work> gather(std::vector<std::vector<at::Tensor>>& outputs,
                                        std::vector<at::Tensor>& inputs,
                                        const c10d::GatherOptions& options) override {
    const std::vector<at::Tensor> all = exchange(inputs.at(0));
    for (std::size_t rank = 0; getRank() == options.rootRank && rank < all.size(); ++rank)
      outputs.at(0).at(rank).copy_(all[rank]);
    return done(c10d::OpType::GATHER);
  }
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions&) override {
    exchange(torch::zeros({1}));
    return done(c10d::OpType::BARRIER);
  }

 private:
  // Returns every rank's tensor; all have one shape and dtype.
  std::vector<at::Tensor> exchange(const at::Tensor& tensor) {
    const at::Tensor own = tensor.detach().cpu().contiguous();
    const std::string round = std::to_string(round_++) + "/";
    const auto* bytes = static_cast<const std::uint8_t*>(own.data_ptr());
    store_->set(round + std::to_string(getRank()), std::vector<std::uint8_t>(bytes, bytes + own.nbytes()));
    std::vector<at::Tensor> all;
    for (int rank = 0; rank < getSize(); ++rank) {
      std::vector<std::uint8_t> data = store_->get(round + std::to_string(rank));
      all.push_back(at::from_blob(data.data(), own.sizes(), own.options()).clone());
    }
    return all;
  }
  c10::intrusive_ptr<c10d::Work> done(c10d::OpType type) {
    return c10::make_intrusive<FinishedWork>(getRank(), type);
  }

  c10::intrusive_ptr<c10d::Store> store_;
  long round_ = 0;
};

}  // namespace

extern "C" void rondo_register_backends(rondo::BackendModule& module) {
  module.add("store", [](const rondo::BackendRequest& request) -> c10::intrusive_ptr<c10d::Backend> {
    return c10::make_intrusive<StoreBackend>(request);
  });
}
