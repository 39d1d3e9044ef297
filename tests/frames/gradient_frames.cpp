// Prints, for each all-reduce of a training step under ddp on one host, the addresses of the functions of
// this program that led to it. tests/integration/gradient_frames_test.py builds it without inlining and names
// them.
#include <dlfcn.h>
#include <execinfo.h>
#include <gtest/gtest.h>
#include <torch/nn.h>

#include <cstdint>
#include <iostream>
#include <mutex>
#include <string>
#include <vector>

#include "rondo/backend/registry.h"
#include "rondo/parallel/ddp/ddp.h"
#include "tests/backend/ranks.h"

namespace {

// Returns the addresses, relative to this program, of the functions running in this thread, innermost first.
std::vector<std::uintptr_t> running_functions() {
  std::vector<void*> addresses(200);
  addresses.resize(
      static_cast<std::size_t>(::backtrace(addresses.data(), static_cast<int>(addresses.size()))));
  Dl_info program = {};
  ::dladdr(reinterpret_cast<void*>(&running_functions), &program);
  std::vector<std::uintptr_t> offsets;
  for (void* const address : addresses) {
    Dl_info module = {};
    if (::dladdr(address, &module) == 0 || module.dli_fbase != program.dli_fbase) continue;
    // Address of the call, not of the instruction after it.
    offsets.push_back(reinterpret_cast<std::uintptr_t>(address) -
                      reinterpret_cast<std::uintptr_t>(program.dli_fbase) - 1);
  }
  return offsets;
}

// An engine that prints the functions that called an all-reduce.
class Recorder final : public c10d::Backend {
 public:
  explicit Recorder(c10::intrusive_ptr<c10d::Backend> engine)
      : c10d::Backend(engine->getRank(), engine->getSize()), engine_(std::move(engine)) {}
  const std::string getBackendName() const override { return "recorder"; }

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override {
    const std::lock_guard lock(mutex());
    std::cout << "all_reduce";
    for (const std::uintptr_t offset : running_functions()) std::cout << " " << offset;
    std::cout << std::endl;
    return engine_->allreduce(tensors, options);
  }
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& options) override {
    return engine_->allgather(outputs, inputs, options);
  }
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions& options) override {
    return engine_->_allgather_base(output, input, options);
  }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    return engine_->broadcast(tensors, options);
  }
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& options) override {
    return engine_->barrier(options);
  }

 private:
  static std::mutex& mutex() {
    static std::mutex the_mutex;
    return the_mutex;
  }
  c10::intrusive_ptr<c10d::Backend> engine_;
};

TEST(GradientFrames, Print) {
  rondo::register_backend("recorder",
                          [](const rondo::BackendRequest& request) {
                            return c10::make_intrusive<Recorder>(rondo::make_backend("native", request));
                          },
                          {.progresses_in_background = false, .registered_memory = true});
  rondo::testing::run_ranks(2, "recorder", [](rondo::Context& context) {
    torch::nn::Linear model(200, 200);
    rondo::DistributedDataParallel ddp(*model, context.world());
    ddp.forward(model, at::ones({2, 200})).sum().backward();
  });
}

}  // namespace
