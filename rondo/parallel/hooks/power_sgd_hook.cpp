#include "rondo/parallel/hooks/power_sgd_hook.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/types.h>

#include <algorithm>
#include <sstream>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/parallel/hooks/default_hooks.h"

namespace rondo {
namespace {

void gram_schmidt(at::Tensor& matrix, double epsilon) {
  const std::int64_t columns = matrix.size(1);
  for (std::int64_t i = 0; i < columns; ++i) {
    at::Tensor column = matrix.narrow(1, i, 1);
    const at::Tensor norm = column.norm(2, {0}, /*keepdim=*/true) + epsilon;
    column.div_(at::where(norm == 0, at::ones_like(norm), norm));
    if (i + 1 == columns) break;
    at::Tensor rest = matrix.narrow(1, i + 1, columns - i - 1);
    rest.sub_((column * rest).sum({0}, /*keepdim=*/true) * column);
  }
}

}  // namespace

void orthogonalize(at::Tensor& matrix, double epsilon) {
  const at::ScalarType dtype = matrix.scalar_type();
  if (matrix.size(1) <= 2 || dtype == at::kHalf || dtype == at::kBFloat16) {
    gram_schmidt(matrix, epsilon);
  } else {
    matrix.copy_(std::get<0>(at::linalg_qr(matrix)));
  }
}

namespace {

// Draws numpy's RandomState(seed).randint(1'000'000'000), from which PyTorch's hook seeds its matrices: the
// first word of the generator, cut to 30 bits, that is in range.
std::uint32_t draw_seed(std::mt19937& random) {
  std::uint32_t word = 0;
  do {
    word = static_cast<std::uint32_t>(random()) & 0x3fffffffU;
  } while (word >= 1'000'000'000U);
  return word;
}

constexpr const char* kCounters = "counters";
constexpr const char* kRandom = "random";

}  // namespace

PowerSgdState::PowerSgdState(Group group, const PowerSgdOptions& options)
    : group_(std::move(group)), options_(options), random_(options.random_seed) {
  if (options.matrix_approximation_rank < 1) {
    throw UsageError(
        str("PowerSGD: matrix_approximation_rank is at least 1, not ", options.matrix_approximation_rank));
  }
  const std::int64_t first = options.use_error_feedback || options.warm_start ? 2 : 0;
  if (options.start_iter < first) {
    throw UsageError(str("PowerSGD: start_iter is at least ", first,
                         first == 2 ? " with error feedback or warm start" : "", ", not ",
                         options.start_iter));
  }
  if (!(options.min_compression_rate > 0) || !(options.orthogonalization_epsilon >= 0)) {
    throw UsageError("PowerSGD: min_compression_rate is above 0, orthogonalization_epsilon at least 0");
  }
}

BucketFuture PowerSgdState::run(const GradBucket& bucket) {
  const bool compresses = iteration_ >= options_.start_iter && bucket.buffer().is_floating_point();
  if (iteration_ < options_.start_iter && bucket.is_last()) ++iteration_;
  return compresses ? compress(bucket) : start_average(group_, bucket.buffer());
}

BucketFuture PowerSgdState::compress(const GradBucket& bucket) {
  Memory& memory = memory_of(bucket);
  const at::Tensor buffer = bucket.buffer();
  at::Tensor input;  // gradients plus the error of earlier steps
  if (options_.use_error_feedback) {
    if (memory.error.defined()) {
      buffer.add_(memory.error);
    } else {
      memory.error = at::zeros_like(buffer);
    }
    input = buffer.clone();
  }
  divide(bucket, memory);
  place_matrices(buffer, memory);

  std::int64_t offset = 0;
  for (const at::Tensor& vector : memory.vectors) {
    memory.first.narrow(0, offset, vector.numel()).copy_(vector.view({-1}));
    offset += vector.numel();
  }
  for (std::size_t i = 0; i < memory.matrices.size(); ++i) {
    at::mm_out(memory.ps[i], memory.matrices[i], memory.qs[i]);
  }
  // P is only a direction, so it is not divided; the rest is divided by the number of ranks after the sum.
  return start_sum(group_, memory.first)
      .then_send([this, &memory](const at::Tensor&) { return compute_qs(memory); })
      .then([this, &memory, input, buffer](const at::Tensor&) { return decompress(memory, input, buffer); });
}

PowerSgdState::Memory& PowerSgdState::memory_of(const GradBucket& bucket) {
  Memory& memory = memories_[bucket.index()];
  if (memory.members != bucket.members()) {
    memory = Memory();
    memory.members = bucket.members();
  }
  return memory;
}

void PowerSgdState::divide(const GradBucket& bucket, Memory& memory) {
  memory.matrices.clear();
  memory.vectors.clear();
  memory.uncompressed = 0;
  for (const at::Tensor& gradient : bucket.gradients()) {
    const std::int64_t elements = gradient.numel();
    const std::int64_t rows = gradient.dim() > 0 ? gradient.size(0) : 1;
    const std::int64_t columns = rows > 0 ? elements / rows : 0;
    const std::int64_t rank = std::min({rows, columns, options_.matrix_approximation_rank});
    const std::int64_t compressed = (rows + columns) * rank;
    elements_before_ += elements;
    if (static_cast<double>(compressed) * options_.min_compression_rate < static_cast<double>(elements)) {
      memory.matrices.push_back(gradient.view({rows, columns}));
      elements_after_ += compressed;
    } else {
      memory.vectors.push_back(gradient);
      memory.uncompressed += elements;
      elements_after_ += elements;
    }
  }
}

void PowerSgdState::place_matrices(const at::Tensor& buffer, Memory& memory) {
  const bool is_new = !memory.first.defined();
  if (is_new) {
    std::int64_t p_elements = 0;
    std::int64_t q_elements = 0;
    for (const at::Tensor& matrix : memory.matrices) {
      const std::int64_t rank =
          std::min({matrix.size(0), matrix.size(1), options_.matrix_approximation_rank});
      p_elements += matrix.size(0) * rank;
      q_elements += matrix.size(1) * rank;
    }
    memory.first = at::empty({memory.uncompressed + p_elements}, buffer.options());
    memory.second = at::empty({q_elements}, buffer.options());
    memory.ps.clear();
    memory.qs.clear();
    std::int64_t p_begin = memory.uncompressed;
    std::int64_t q_begin = 0;
    for (const at::Tensor& matrix : memory.matrices) {
      const std::int64_t rows = matrix.size(0);
      const std::int64_t columns = matrix.size(1);
      const std::int64_t rank = std::min({rows, columns, options_.matrix_approximation_rank});
      memory.ps.push_back(memory.first.narrow(0, p_begin, rows * rank).view({rows, rank}));
      memory.qs.push_back(memory.second.narrow(0, q_begin, columns * rank).view({columns, rank}));
      p_begin += rows * rank;
      q_begin += columns * rank;
    }
  }
  const bool goes_on = (!is_new || take_restored(memory)) && options_.warm_start;
  if (!goes_on) draw_qs(memory);
  for (at::Tensor& q : memory.qs) {
    if (goes_on) {
      // A zero gradient leaves a zero column, which gives no direction for the warm start.
      const at::Tensor gone = (q == 0).all(0, /*keepdim=*/true);
      q.masked_fill_(gone, 1);
    }
    orthogonalize(q, options_.orthogonalization_epsilon);
  }
}

// Copies the saved `second`, if there is one, into `memory`. Returns true if it did.
bool PowerSgdState::take_restored(Memory& memory) const {
  const at::Tensor restored = std::exchange(memory.restored, at::Tensor());
  if (!restored.defined()) return false;
  if (restored.numel() != memory.second.numel()) {
    throw DataError(str("PowerSGD: the matrices that were saved have ", restored.numel(),
                        " values where this model and rank need ", memory.second.numel()));
  }
  memory.second.copy_(restored);
  return true;
}

CommState PowerSgdState::save() const {
  TextStream random;
  random << random_;
  const std::string text = random.str();
  CommState state;
  state[kCounters] = torch::tensor({iteration_, elements_before_, elements_after_}, at::kLong);
  state[kRandom] = torch::tensor(std::vector<std::uint8_t>(text.begin(), text.end()), at::kByte);
  for (const auto& [bucket, memory] : memories_) {
    state[str("members/", bucket)] = numbers_to_tensor(memory.members);
    if (memory.error.defined()) state[str("error/", bucket)] = memory.error.clone();
    if (memory.first.defined()) state[str("q/", bucket)] = memory.second.clone();
  }
  return state;
}

void PowerSgdState::restore(const CommState& state) {
  const auto counters = state.find(kCounters);
  const auto random = state.find(kRandom);
  if (counters == state.end() || random == state.end() || counters->second.numel() != 3)
    throw DataError("the state is not one of PowerSGD");
  const auto* numbers = counters->second.data_ptr<std::int64_t>();
  iteration_ = numbers[0];
  elements_before_ = numbers[1];
  elements_after_ = numbers[2];
  const at::Tensor text = random->second.contiguous();
  std::istringstream generator(std::string(static_cast<const char*>(text.data_ptr()), text.nbytes()));
  generator.imbue(std::locale::classic());
  generator >> random_;
  memories_.clear();
  for (const auto& [name, tensor] : state) {
    const std::size_t slash = name.find('/');
    if (slash == std::string::npos) continue;
    Memory& memory = memories_[static_cast<std::size_t>(parse_integer(name.substr(slash + 1), name))];
    if (name.starts_with("members/")) memory.members = tensor_to_numbers(tensor);
    if (name.starts_with("error/")) memory.error = tensor.clone();
    if (name.starts_with("q/")) memory.restored = tensor.clone();
  }
}

void PowerSgdState::draw_qs(Memory& memory) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(draw_seed(random_));
  for (at::Tensor& q : memory.qs) {
    q.copy_(at::randn(q.sizes(), generator, q.options().device(at::kCPU)));
  }
}

BucketFuture PowerSgdState::compute_qs(Memory& memory) {
  std::int64_t offset = 0;
  memory.first.narrow(0, 0, memory.uncompressed).div_(group_.size());
  for (const at::Tensor& vector : memory.vectors) {
    vector.copy_(memory.first.narrow(0, offset, vector.numel()).view(vector.sizes()));
    offset += vector.numel();
  }
  for (std::size_t i = 0; i < memory.matrices.size(); ++i) {
    orthogonalize(memory.ps[i], options_.orthogonalization_epsilon);
    at::mm_out(memory.qs[i], memory.matrices[i].t(), memory.ps[i]);
  }
  return start_sum(group_, memory.second);
}

at::Tensor PowerSgdState::decompress(Memory& memory, const at::Tensor& input, const at::Tensor& buffer) {
  memory.second.div_(group_.size());
  for (std::size_t i = 0; i < memory.matrices.size(); ++i) {
    at::mm_out(memory.matrices[i], memory.ps[i], memory.qs[i].t());
  }
  if (input.defined()) at::sub_out(memory.error, input, buffer);
  // The sums are the same on all ranks, so all ranks make the same decision.
  if (!at::isfinite(memory.first).all().item<bool>() || !at::isfinite(memory.second).all().item<bool>()) {
    memory.error.reset();
    memory.first.reset();
  }
  return buffer;
}

PowerSgdState::CompressionStats PowerSgdState::compression_stats() const {
  const double rate =
      elements_after_ == 0 ? 0 : static_cast<double>(elements_before_) / static_cast<double>(elements_after_);
  return {rate, elements_before_, elements_after_};
}

CommHook power_sgd_hook(std::shared_ptr<PowerSgdState> state) {
  const PowerSgdOptions& options = state->options();
  return {str("power_sgd: rank ", options.matrix_approximation_rank, ", start ", options.start_iter,
              ", compression ", options.min_compression_rate, ", feedback ", options.use_error_feedback,
              ", warm ", options.warm_start, ", epsilon ", options.orthogonalization_epsilon, ", seed ",
              options.random_seed),
          [state](GradBucket& bucket) { return state->run(bucket); }, [state] { return state->save(); },
          [state](const CommState& saved) { state->restore(saved); }};
}

CommHook power_sgd_hook(const Group& group, const PowerSgdOptions& options) {
  return power_sgd_hook(std::make_shared<PowerSgdState>(group, options));
}

}  // namespace rondo
