#include "rondo/strategy/one_device.h"

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/strategy/replica_context.h"
#include "rondo/strategy/synchronous_training.h"

namespace rondo {
namespace {

class LocalModel final : public PreparedModel {
 public:
  explicit LocalModel(std::shared_ptr<torch::nn::Module> module) : module_(std::move(module)) {}
  torch::nn::Module& module() override { return *module_; }
  ModelParts& parts() override { return parts_; }

 private:
  std::shared_ptr<torch::nn::Module> module_;
  UndividedModel parts_{*module_, {}, {.optimizes_whole_model = true}};
};

void require_one(const Context& context) {
  if (context.world_size() == 1) return;
  throw UsageError(str("strategy one_device trains on one process, but this job has ", context.world_size(),
                       "; use strategy ddp, or start one process"));
}

}  // namespace

OneDevice::OneDevice(Context context) : ProcessStrategy("one_device", std::move(context)) {
  require_one(this->context());
}

void OneDevice::rebuild(const Context& context) {
  require_one(context);
  set_context(context);
}

std::unique_ptr<PreparedModel> local_model(std::shared_ptr<torch::nn::Module> module) {
  return std::make_unique<LocalModel>(std::move(module));
}

std::unique_ptr<PreparedModel> OneDevice::prepare(std::shared_ptr<torch::nn::Module> module) {
  return local_model(std::move(module));
}

DefaultStrategy::DefaultStrategy(const std::optional<Context>& context) : Strategy("default", context) {
  if (!context) return;
  placement_.replicas = context->world();
  if (context->world_size() != 1) {
    throw UsageError(str("strategy default trains on one process, but this job has ", context->world_size(),
                         "; use strategy ddp, or start one process"));
  }
}

std::unique_ptr<Training> DefaultStrategy::prepare(const Recipe& recipe) {
  return std::make_unique<SynchronousTraining>(*this, recipe);
}

std::unique_ptr<PreparedModel> DefaultStrategy::prepare(std::shared_ptr<torch::nn::Module> module) {
  return local_model(std::move(module));
}

ReplicaValue DefaultStrategy::run(const std::function<at::Tensor(int replica)>& step) {
  const ReplicaContext replica(*this, 0, [](ReduceOp, const at::Tensor& value) { return value.clone(); });
  return step(0);
}

}  // namespace rondo
