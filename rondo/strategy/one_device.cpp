#include "rondo/strategy/one_device.h"

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

class LocalModel final : public PreparedModel {
 public:
  explicit LocalModel(std::shared_ptr<torch::nn::Module> module) : module_(std::move(module)) {}
  torch::nn::Module& module() override { return *module_; }
  ModelParts& parts() override { return parts_; }
  void begin_step(const LocalBatch&) override {}
  void finish_backward() override {}
  CommunicationTimes communication_times() const override { return {}; }

 private:
  std::shared_ptr<torch::nn::Module> module_;
  UndividedModel parts_{*module_};
};

}  // namespace

OneDevice::OneDevice(Context context) : ProcessStrategy("one_device", std::move(context)) {
  const int world_size = this->context().world_size();
  if (world_size != 1) {
    throw UsageError(str("strategy one_device trains on one process, but this job has ", world_size,
                         "; use strategy ddp, or start one process"));
  }
}

std::unique_ptr<PreparedModel> OneDevice::prepare(std::shared_ptr<torch::nn::Module> module) {
  return std::make_unique<LocalModel>(std::move(module));
}

}  // namespace rondo
