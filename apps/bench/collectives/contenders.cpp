#include <algorithm>
#include <cstdlib>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "apps/bench/collectives/collectives.h"
#include "rondo/backend/engine/store_adapter.h"
#include "rondo/backend/point_to_point.h"
#include "rondo/backend/registry.h"
#include "rondo/base/text.h"
#include "rondo/channel/shared_memory_channel.h"
#include "rondo/collective/algorithms/registry.h"
#include "rondo/collective/executor.h"

namespace rondo::bench {
namespace {

constexpr int kFreshSets = 4;

class ExerciseContender final : public Contender {
 public:
  ExerciseContender(Labels labels, std::function<bool(const Case&)> can,
                    std::function<Exercise(const Case&)> make)
      : labels_(std::move(labels)), can_(std::move(can)), make_(std::move(make)) {}

  const Labels& labels() const override { return labels_; }
  bool can(const Case& what) const override { return can_(what); }

  bool prepare(const Case& what) override {
    fresh_ = what.fresh;
    sets_.clear();
    samples_.clear();
    bool right = true;
    for (int set = 0; set < (fresh_ ? kFreshSets : 1); ++set) {
      sets_.push_back(make_(what));
      right = sets_.back().correct() && right;
    }
    for (int i = 0; i < sets_.front().warm_ups; ++i) sets_.front().run();
    return right;
  }

  double estimate_us() override {
    const int runs = std::min(3, sets_.front().warm_ups);
    return timed([&] {
             for (int i = 0; i < runs; ++i) sets_.front().run();
           }) *
           1e6 / runs;
  }

  void run(const Burst& burst) override {
    for (int sample = 0; sample < burst.samples; ++sample) {
      long long elapsed = 0;
      if (fresh_) {
        const Exercise& set = sets_[next_set_++ % sets_.size()];
        set.write();
        // Synchronizes the ranks; otherwise the measured time would include differences between the ranks'
        // writes.
        if (set.meet) set.meet();
        elapsed = -monotonic_ns();
        set.run();
        elapsed += monotonic_ns();
      } else {
        elapsed = -monotonic_ns();
        for (int i = 0; i < burst.batch; ++i) sets_.front().run();
        elapsed += monotonic_ns();
      }
      const double operations = fresh_ ? 1 : burst.batch;
      samples_.push_back(static_cast<double>(elapsed) / 1e3 / operations * sets_.front().time_share);
    }
  }

  Timing finish() override {
    sets_.clear();
    const std::vector<double> samples = std::exchange(samples_, {});
    if (samples.empty()) return {};
    const RepeatedTime time = repeated(samples);
    return {time.p50, time.min, static_cast<int>(samples.size())};
  }

 private:
  Labels labels_;
  std::function<bool(const Case&)> can_;
  std::function<Exercise(const Case&)> make_;
  bool fresh_ = false;
  std::vector<Exercise> sets_;
  std::size_t next_set_ = 0;
  std::vector<double> samples_;
};

}  // namespace

std::unique_ptr<Contender> make_backend_contender(Labels labels, c10::intrusive_ptr<c10d::Backend> backend,
                                                  Memory memory) {
  const bool coded = labels.codec != "none";
  return make_exercise_contender(
      labels,
      // A system without a direct call is not measured twice.
      [labels, coded](const Case& what) {
        if (coded) return what.operation == "all_reduce" && what.dtype == at::kFloat;
        return !labels.registered || labels.direct || what.operation == "all_reduce";
      },
      [backend, memory, labels, coded](const Case& what) {
        if (coded) return make_coded_all_reduce(labels.codec, backend, what.bytes);
        return make_exercise(what.operation, backend, what.bytes, what.dtype, memory, labels.direct);
      });
}

std::unique_ptr<Contender> make_exercise_contender(Labels labels, std::function<bool(const Case&)> can,
                                                   std::function<Exercise(const Case&)> make) {
  return std::make_unique<ExerciseContender>(std::move(labels), std::move(can), std::move(make));
}

namespace {

DType dtype_of(at::ScalarType type) {
  if (type == at::kDouble) return DType::float64;
  if (type == at::kHalf) return DType::float16;
  return type == at::kBFloat16 ? DType::bfloat16 : DType::float32;
}

bool has_operation(const std::string& algorithm, const Case& what) {
  const auto& operations = collective::find_algorithm(algorithm).operations;
  return std::any_of(operations.begin(), operations.end(),
                     [&](OperationKind operation) { return what.operation == name(operation); });
}

class ScheduleExercise {
 public:
  ScheduleExercise(const std::string& algorithm, const std::shared_ptr<Channel>& channel,
                   const std::vector<int>& hosts, bool in_rank_order, const Case& what)
      : channel_(channel) {
    const std::size_t element = c10::elementSize(what.dtype);
    request_.operation = collective::find_operation(what.operation);
    request_.rank = channel->rank();
    request_.world = channel->size();
    request_.bytes = what.bytes;
    request_.element_bytes = element;
    request_.hosts = hosts;
    request_.in_rank_order = in_rank_order && reduces(request_.operation);
    buffer_ =
        make_buffer(static_cast<std::int64_t>(what.bytes.count / element), what.dtype, Memory::ordinary);
    const bool scatters = request_.operation == OperationKind::reduce_scatter;
    if (scatters) input_ = make_buffer(buffer_.numel(), what.dtype, Memory::ordinary);
    if (request_.operation == OperationKind::all_gather)
      input_ = make_buffer(own_part(buffer_, request_.rank).numel(), what.dtype, Memory::ordinary);
    if (scatters)
      output_ = make_buffer(own_part(buffer_, request_.rank).numel(), what.dtype, Memory::ordinary);
    executor_ = std::make_unique<collective::Executor>(collective::make_schedule(algorithm, request_),
                                                       dtype_of(what.dtype), Reduction::sum);
  }

  void run() {
    if (input_.defined()) from_input().copy_(input_);
    executor_->run(*channel_, {static_cast<std::byte*>(buffer_.mutable_data_ptr()), request_.bytes.count},
                   Wait{Deadline::never(), nullptr});
    if (output_.defined()) output_.copy_(own_part(buffer_, request_.rank));
  }
  void write() { (input_.defined() ? input_ : buffer_).fill_(1); }

  bool correct() {
    const auto elements = buffer_.numel();
    const auto input = [&](int rank) { return test_pattern(rank, elements, buffer_.scalar_type()); };
    buffer_.copy_(input(request_.rank));
    if (input_.defined()) input_.copy_(from_input());
    run();
    at::Tensor expected = test_sum(request_.world, elements, buffer_.scalar_type());
    at::Tensor result = buffer_;
    switch (request_.operation) {
      case OperationKind::broadcast:
        expected = input(0);
        break;
      case OperationKind::all_gather:
        for (int rank = 0; rank < request_.world; ++rank)
          own_part(expected, rank).copy_(own_part(input(rank), rank));
        break;
      case OperationKind::reduce_scatter:
        expected = own_part(expected, request_.rank);
        result = output_;
        break;
      case OperationKind::reduce:
        if (request_.rank != 0) return true;
        break;
      default:
        break;
    }
    const bool right = at::equal(result, expected);
    write();
    return right;
  }

 private:
  // Returns the input's part of the buffer.
  at::Tensor from_input() const {
    return request_.operation == OperationKind::all_gather ? own_part(buffer_, request_.rank) : buffer_;
  }
  at::Tensor own_part(const at::Tensor& tensor, int rank) const {
    const collective::Range part = collective::part_of(request_, rank);
    const std::size_t element = request_.element_bytes;
    return tensor.narrow(0, static_cast<std::int64_t>(part.offset / element),
                         static_cast<std::int64_t>(part.bytes / element));
  }

  std::shared_ptr<Channel> channel_;
  collective::ScheduleRequest request_;
  at::Tensor buffer_;
  at::Tensor input_;   // undefined if the operation works in place
  at::Tensor output_;  // undefined if the operation works in place
  std::unique_ptr<collective::Executor> executor_;
};

}  // namespace

std::unique_ptr<Contender> make_schedule_contender(const std::string& algorithm,
                                                   const std::string& channel_name,
                                                   std::shared_ptr<Channel> channel, std::vector<int> hosts,
                                                   bool in_rank_order) {
  const auto can = [algorithm](const Case& what) { return has_operation(algorithm, what); };
  const auto make = [=](const Case& what) {
    const auto schedule = std::make_shared<ScheduleExercise>(algorithm, channel, hosts, in_rank_order, what);
    Exercise exercise;
    exercise.run = [schedule] { schedule->run(); };
    exercise.write = [schedule] { schedule->write(); };
    exercise.correct = [schedule] { return schedule->correct(); };
    return exercise;
  };
  return make_exercise_contender({"rondo", algorithm, channel_name, false}, can, make);
}

namespace {

c10::intrusive_ptr<c10d::Backend> make_peer_engine(const std::string& name, const Group& world,
                                                   const std::string& purpose = "peer") {
  BackendRequest request;
  request.group_name = str("bench-", name, "-", purpose);
  request.rank = world.rank();
  request.size = world.size();
  request.world_ranks = world.ranks();
  request.store = c10::make_intrusive<c10d::PrefixStore>(request.group_name, world.store());
  return make_backend(name, request);
}

std::shared_ptr<Channel> make_channel(const std::string& name, const Group& world, const ThreadMesh* mesh) {
  if (name == "threads") return mesh->connect(world.rank());
  const auto store = std::make_shared<StoreFromC10d>(world.store());
  const Duration timeout = std::chrono::minutes(5);
  if (name == "shm") {
    return std::make_shared<SharedMemoryChannel>(
        *store, SharedMemoryChannel::Options{"bench", world.rank(), world.size(), timeout});
  }
  return std::make_shared<PointToPointChannel>(make_peer_engine("gloo", world, "schedules"), store,
                                               "bench-tcp", timeout);
}

}  // namespace

std::vector<std::unique_ptr<Contender>> make_contenders(const CollectivesSettings& settings,
                                                        const Group& world, const ThreadMesh* mesh) {
  std::vector<std::unique_ptr<Contender>> contenders;
  const std::string memory = mesh != nullptr ? "threads" : "shm";
  contenders.push_back(
      make_backend_contender({"rondo", "auto", memory, true, true}, world.backend(), Memory::registered));
  contenders.push_back(
      make_backend_contender({"rondo", "auto", memory, true, false}, world.backend(), Memory::registered));
  contenders.push_back(
      make_backend_contender({"rondo", "auto", memory, false, true}, world.backend(), Memory::ordinary));
  for (const std::string& codec : settings.codecs) {
    contenders.push_back(make_backend_contender({"rondo", "auto", memory, false, false, codec},
                                                world.backend(), Memory::ordinary));
  }
  for (const std::string& name : settings.channels) {
    if (settings.algorithms.empty() || (name == "threads") != (mesh != nullptr)) continue;
    const std::shared_ptr<Channel> channel = make_channel(name, world, mesh);
    for (const std::string& algorithm : settings.algorithms) {
      contenders.push_back(make_schedule_contender(
          algorithm, name, channel, spread_over_hosts(world.size(), settings.hosts), settings.deterministic));
    }
  }
  if (mesh != nullptr) return contenders;
  for (const MpiPeer& peer : settings.mpi_peers)
    contenders.push_back(make_mpi_contender(peer, world.rank(), world.size()));
  if (!settings.peers) return contenders;
  const auto gloo = make_peer_engine("gloo", world);
  contenders.push_back(make_backend_contender({"gloo", "auto", "tcp", false}, gloo, Memory::ordinary));
  for (const std::string& codec : settings.codecs) {
    contenders.push_back(
        make_backend_contender({"rondo", "auto", "tcp", false, false, codec}, gloo, Memory::ordinary));
  }
  if (why_no_openmpi().empty())
    contenders.push_back(make_mpi_contender({"openmpi", {}}, world.rank(), world.size()));
  return contenders;
}

}  // namespace rondo::bench
