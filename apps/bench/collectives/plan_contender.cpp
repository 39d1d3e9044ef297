#include "apps/bench/collectives/plan_contender.h"

#include <algorithm>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/collective/algorithms/registry.h"
#include "rondo/collective/executor.h"

namespace rondo::bench {
namespace {

const std::vector<std::string> kChannels = {"threads", "shm", "tcp"};

DType dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return DType::float64;
    case at::kHalf:
      return DType::float16;
    case at::kBFloat16:
      return DType::bfloat16;
    default:
      return DType::float32;
  }
}

class PlanExercise {
 public:
  PlanExercise(const std::string& algorithm, const std::shared_ptr<Channel>& channel,
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
    executor_ = std::make_unique<collective::Executor>(collective::make_plan(algorithm, request_),
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
  // Where the input goes.
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
  collective::PlanRequest request_;
  at::Tensor buffer_;
  at::Tensor input_;   // undefined where the operation works in place
  at::Tensor output_;  // likewise
  std::unique_ptr<collective::Executor> executor_;
};

void check_known(const std::string& flag, const std::vector<std::string>& chosen,
                 const std::vector<std::string>& known) {
  if (chosen.empty()) throw UsageError(str(flag, ": is empty; there are: ", join(known, ", ")));
  for (const std::string& name : chosen) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      throw UsageError(str(flag, ": '", name, "' is not one of ", join(known, ", ")));
    }
  }
}

}  // namespace

std::unique_ptr<Contender> make_plan_contender(const std::string& algorithm, const std::string& channel_name,
                                               std::shared_ptr<Channel> channel, std::vector<int> hosts,
                                               bool in_rank_order) {
  const auto can = [algorithm](const Case& what) {
    for (const OperationKind operation : collective::find_algorithm(algorithm).operations) {
      if (what.operation == name(operation)) return true;
    }
    return false;
  };
  const auto make = [=](const Case& what) {
    const auto plan = std::make_shared<PlanExercise>(algorithm, channel, hosts, in_rank_order, what);
    Exercise exercise;
    exercise.run = [plan] { plan->run(); };
    exercise.write = [plan] { plan->write(); };
    exercise.correct = [plan] { return plan->correct(); };
    return exercise;
  };
  return make_exercise_contender({"rondo", algorithm, channel_name, false}, can, make);
}

std::vector<std::string> parse_algorithms(const std::string& text) {
  if (text == "all") return collective::algorithm_names();
  std::vector<std::string> chosen = split(text, ',');
  check_known("--algorithm", chosen, collective::algorithm_names());
  return chosen;
}

std::vector<std::string> parse_channels(const std::string& text) {
  std::vector<std::string> chosen = split(text, ',');
  check_known("--channel", chosen, kChannels);
  return chosen;
}

}  // namespace rondo::bench
