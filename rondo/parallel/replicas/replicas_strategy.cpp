#include "rondo/parallel/replicas/replicas_strategy.h"

#include <set>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/device/cards.h"
#include "rondo/device/devices.h"
#include "rondo/parallel/ddp/ddp_strategy.h"
#include "rondo/parallel/hooks/registry.h"
#include "rondo/parallel/replicas/data_parallel.h"
#include "rondo/parallel/replicas/replica_threads.h"
#include "rondo/parallel/replicas/replicas_options.h"
#include "rondo/strategy/replica_context.h"

namespace rondo {
namespace {

constexpr const char* kImplementationNccl = "mwm-implementation nccl";

// ddp with one replica per process, which must not reduce gradients with another engine.
class DdpOverNccl final : public DdpStrategy {
 public:
  using DdpStrategy::DdpStrategy;
  using DdpStrategy::prepare;
  std::unique_ptr<Training> prepare(const Recipe& recipe) override {
    require_cuda_devices({recipe.device}, kImplementationNccl);
    return DdpStrategy::prepare(recipe);
  }
};

c10::Device parse_device(const std::string& text) {
  try {
    const c10::Device device(text);
    if (device.is_cpu() || device.is_cuda() || device.is_privateuseone()) return device;
  } catch (const c10::Error&) {
    // Reported below.
  }
  throw UsageError(str("devices ", text, ": expected cpu, cuda or cuda:N for each replica"));
}

std::vector<c10::Device> parse_devices(const ReplicasOptions& options) {
  std::vector<c10::Device> devices;
  std::set<c10::DeviceIndex> used;
  for (const std::string& text : options.devices) {
    const c10::Device device = parse_device(text);
    if (device.is_cuda()) device_count(device.type());  // loads CUDA before the model asks libtorch for it
    if (!device.is_cpu() && !used.insert(device.index()).second)
      throw UsageError(str("devices names ", text, " twice; only the CPU may stand several times"));
    devices.push_back(device);
  }
  if (!devices.empty() && options.replicas != 1 && options.replicas != static_cast<int>(devices.size())) {
    throw UsageError(
        str("--replicas ", options.replicas, " but devices names ", devices.size(), ": give one of the two"));
  }
  return devices;
}

int replicas_of(const ReplicasOptions& options) {
  if (options.replicas < 1) throw UsageError(str("--replicas ", options.replicas, ": expected one or more"));
  return options.devices.empty() ? options.replicas : static_cast<int>(options.devices.size());
}

void require_one_process(const std::string& name, const Context& context) {
  if (context.world_size() == 1) return;
  throw UsageError(str("strategy ", name, " trains on one process, but this job has ", context.world_size(),
                       "; use multi_worker_mirrored or ddp, or start one process"));
}

}  // namespace

ReplicasStrategy::ReplicasStrategy(Context context, ReplicasSettings settings, int replicas)
    : Strategy(settings.strategy, std::move(context)),
      settings_(std::move(settings)),
      threads_(std::make_shared<ReplicaThreads>(replicas)),
      values_(*threads_, this->context().world()) {}

ReplicaPlacement ReplicasStrategy::placement() const {
  const Group& world = context().world();
  const InputShard shard{world.rank(), world.size(), threads_->size()};
  return {.num_replicas_in_sync = world.size() * threads_->size(),
          .input = shard,
          .evaluation = shard,
          .replicas = world};
}

std::vector<c10::Device> ReplicasStrategy::devices_from(c10::Device first) const {
  std::vector<c10::Device> devices = settings_.devices;
  if (devices.empty() && settings_.central_variables) {
    // Central variables are on one device, so all replicas compute there.
    devices.assign(static_cast<std::size_t>(threads_->size()), context().devices(first, 1).front());
  } else if (devices.empty()) {
    devices = context().devices(first, threads_->size());
  }
  for (const c10::Device& device : devices) {
    if (device.is_cpu()) continue;
    const int there = device_count(device.type());
    if (device.index() >= there) {
      const std::string kind = c10::DeviceTypeName(device.type());
      throw UsageError(
          str("strategy ", name(), " has ", threads_->size(), " replicas, each on a ", kind,
              " device of its own, and ", device.str(), " is not there: the number of ", kind,
              " devices that libtorch sees is ", there,
              device.is_cuda() && !is_cuda_build() ? " (this libtorch is built without CUDA)" : "",
              "; give fewer --replicas, other devices, or --device cpu"));
    }
  }
  return devices;
}

std::unique_ptr<Training> ReplicasStrategy::prepare(const Recipe& recipe) {
  ReplicasSettings settings = settings_;
  settings.devices = devices_from(recipe.device);
  if (settings.workers_need_nccl) require_cuda_devices(settings.devices, kImplementationNccl);
  if (settings.gradients.ops == CrossDeviceOps::nccl) {
    require_cuda_devices(settings.devices, "--cross-device-ops nccl");
    if (threads_->size() > 1)
      settings.gradients.engines = std::make_shared<ReplicaEngines>(*threads_, "nccl", context().timeout());
  }
  return std::make_unique<ReplicasTraining>(*this, threads_, settings, recipe);
}

ReplicaValue ReplicasStrategy::run(const std::function<at::Tensor(int replica)>& step) {
  std::vector<at::Tensor> values(static_cast<std::size_t>(threads_->size()));
  threads_->run([&](int replica) {
    const Scope scope(this);
    const int number = context().rank() * threads_->size() + replica;
    const ReplicaContext within(*this, number, [this](ReduceOp op, const at::Tensor& value) {
      return values_.all_reduce(op, value);
    });
    values[static_cast<std::size_t>(replica)] = step(number);
  });
  return ReplicaValue(std::move(values));
}

std::unique_ptr<Strategy> MirroredStrategyFactory::make(const std::string& name, const Context& context,
                                                        const Options& options) {
  require_one_process(name, context);
  if (options.num_packs < 0)
    throw UsageError(str("mirrored-num-packs ", options.num_packs, ": expected 0 or more"));
  return std::make_unique<ReplicasStrategy>(
      context,
      ReplicasSettings{
          .strategy = name,
          .devices = parse_devices(options),
          .gradients = {.ops = parse_cross_device_ops(options.cross_device_ops, "--cross-device-ops"),
                        .num_packs = options.num_packs}},
      replicas_of(options));
}

std::unique_ptr<Strategy> CentralStorageStrategyFactory::make(const std::string& name, const Context& context,
                                                              const Options& options) {
  require_one_process(name, context);
  std::vector<c10::Device> devices = parse_devices(options);
  for (const c10::Device& device : devices) {
    if (device != devices.front()) {
      throw UsageError(str("strategy ", name, " keeps the variables once, on ", devices.front().str(),
                           ", which a replica on ", device.str(), " cannot compute with; use mirrored"));
    }
  }
  return std::make_unique<ReplicasStrategy>(
      context, ReplicasSettings{.strategy = name, .devices = std::move(devices), .central_variables = true},
      replicas_of(options));
}

std::unique_ptr<Strategy> DataParallelStrategyFactory::make(const std::string& name, const Context& context,
                                                            const Options& options) {
  require_one_process(name, context);
  return std::make_unique<DataParallel>(
      context, ReplicasSettings{.strategy = name, .devices = parse_devices(options)}, replicas_of(options));
}

std::unique_ptr<Strategy> MultiWorkerMirroredStrategyFactory::make(const std::string& name,
                                                                   const Context& context,
                                                                   const Options& options) {
  const int replicas = replicas_of(options);
  const bool needs_nccl = options.implementation == "nccl";
  if (needs_nccl) require_nccl(context, kImplementationNccl);
  if (replicas == 1 && options.devices.empty()) {
    if (needs_nccl) return std::make_unique<DdpOverNccl>(context, options);
    return DdpStrategyFactory::make("ddp", context, options);
  }
  const OptionTable of_ddp = ddp_strategy_table();
  for (const Option& option : of_ddp.options()) {
    const auto text = option.text(static_cast<const DdpStrategyOptions*>(&options));
    if (text == option.default_text || option.name == "codec") continue;
    throw UsageError(str("strategy ", name, " takes ", option.shown_name(),
                         " with one replica a process, where it is "
                         "ddp; with ",
                         replicas, " replicas it has no effect"));
  }
  WorkerExchangeOptions workers{.ring = options.implementation == "ring", .codec = options.codec};
  if (options.codec != "none") {
    if (options.implementation != "auto") {
      throw UsageError(str("mwm-implementation ", options.implementation, " sums plain values, but --codec ",
                           options.codec, " sums encoded ones: give one of the two"));
    }
    make_comm_hook(options.codec, context.world());  // an invalid name is an error for one process, too
  }
  if (options.bytes_per_pack.count > 0) workers.bytes_per_pack = options.bytes_per_pack;
  if (options.pack_timeout) workers.timeout = parse_duration(*options.pack_timeout, "mwm-pack-timeout");
  ReplicasSettings settings;
  settings.strategy = name;
  settings.devices = parse_devices(options);
  settings.workers = workers;
  settings.workers_need_nccl = needs_nccl;
  return std::make_unique<ReplicasStrategy>(context, std::move(settings), replicas);
}

}  // namespace rondo
