#include "rondo/parallel/ddp/gradient_reducer.h"

#include <torch/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/types.h>

#include <algorithm>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/format/compute_timeline.h"
#include "rondo/parallel/ddp/backward_trace.h"
#include "rondo/parallel/ddp/flat_all_reduce.h"
#include "rondo/parallel/gradients/model_agreement.h"
#include "rondo/parallel/gradients/transfer.h"

namespace rondo {

Duration communication_time(const BackwardTrace& trace) {
  // No bucket starts before that wait is over.
  return time_under_way(trace.buckets) +
         std::chrono::duration_cast<Duration>(std::chrono::nanoseconds(trace.waited_ns));
}

Duration exposed_communication_time(const BackwardTrace& trace) {
  return std::chrono::duration_cast<Duration>(
      std::chrono::nanoseconds(trace.end_ns - trace.backward_end_ns + trace.waited_ns));
}

namespace {

std::vector<ModelTensor> joined(std::vector<ModelTensor> first, const std::vector<ModelTensor>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

std::string names_of(const std::vector<ModelTensor>& parameters, const std::vector<std::size_t>& indices) {
  constexpr std::size_t shown = 10;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < std::min(shown, indices.size()); ++i) {
    names.push_back(str("'", parameters[indices[i]].name, "'"));
  }
  const std::string more = indices.size() > shown ? str(" and ", indices.size() - shown, " more") : "";
  return join(names, ", ") + more;
}

}  // namespace

// Callback of autograd at the end of a backward pass. If it is destroyed without a call, the pass has failed.
class GradientReducer::PassEnd {
 public:
  explicit PassEnd(std::shared_ptr<GradientReducer> reducer) : reducer_(std::move(reducer)) {}
  ~PassEnd() {
    if (reducer_) reducer_->abandon_pass();
  }
  PassEnd(const PassEnd&) = delete;
  PassEnd& operator=(const PassEnd&) = delete;
  void reached() {
    const std::shared_ptr<GradientReducer> reducer = std::exchange(reducer_, nullptr);
    const std::lock_guard lock(reducer->mutex_);
    reducer->end_pass(/*had_backward=*/true);
  }

 private:
  std::shared_ptr<GradientReducer> reducer_;
};

GradientReducer::GradientReducer(std::vector<ModelTensor> dense, std::vector<ModelTensor> sparse,
                                 std::vector<ModelTensor> frozen, Group group, const DdpOptions& options,
                                 std::shared_ptr<StepAnnouncement> announcement)
    : Reducer(joined(dense, sparse), *announcement),
      dense_(std::move(dense)),
      parameters_(joined(dense_, sparse)),
      frozen_(std::move(frozen)),
      group_(std::move(group)),
      options_(options),
      announcement_(std::move(announcement)),
      on_cpu_(std::all_of(dense_.begin(), dense_.end(),
                          [](const ModelTensor& parameter) { return parameter.tensor.is_cpu(); })),
      queue_(make_policy({.name = "fifo"}), {}, nullptr, group_.traits().progresses_in_background),
      sparse_(std::move(sparse), group_),
      ready_(parameters_.size()),
      used_(parameters_.size()),
      unused_here_(parameters_.size()),
      unused_anywhere_(parameters_.size()),
      drift_(std::make_shared<DriftCheck>(parameters_, group_)) {
  announcement_->carry(drift_);
  for (const ModelTensor& parameter : parameters_)
    expected_.emplace_back(parameter.tensor.scalar_type(), parameter.tensor.numel());
  expect_reverse_order();
}

// Leaves no operation running on this rank's memory.
GradientReducer::~GradientReducer() { queue_.abandon(); }

// Expects gradients of the last layer first until the arrival order is known.
void GradientReducer::expect_reverse_order() { lay_out(last_first(dense_.size())); }

// Returns the fastest transfer that the group's engine allows. A hook always gets flat buckets.
std::unique_ptr<Transfer> GradientReducer::make_transfer(Bucket bucket) const {
  if (reduces_in_place())
    return std::make_unique<InPlaceAllReduce>(std::move(bucket), weight_source_, group_);
  return std::make_unique<FlatAllReduce>(std::move(bucket), weight_source_, group_, hook_,
                                         options_.gradient_as_bucket_view);
}

void GradientReducer::lay_out(std::span<const std::size_t> order) {
  transfers_.clear();
  gradients_.clear();
  layers_.clear();
  places_.resize(dense_.size());
  const Bytes size = options_.bucket_bytes.value_or(MiB(25));
  const Bytes first = options_.first_bucket_bytes.value_or(options_.bucket_bytes.value_or(MiB(1)));
  const BucketPlan plan = reduces_in_place()
                              ? plan_in_place(dense_, order, options_.bucket_bytes.value_or(KiB(64)))
                              : plan_buckets(gradient_specs(dense_), order, first, size);
  for (Bucket& bucket : make_buckets(dense_, plan)) {
    for (std::size_t member = 0; member < bucket.numbers.size(); ++member)
      places_[bucket.numbers[member]] = {bucket.index, member};
    gradients_.push_back(bucket.numbers.size());
    layers_.push_back(bucket.layers());
    transfers_.push_back(make_transfer(std::move(bucket)));
  }
}

void GradientReducer::send(std::size_t index) {
  weight();  // all ranks run the announcement before the first bucket
  Transfer& transfer = *transfers_[index];
  transfer.launch(queue_, /*order=*/0,
                  {.describe =
                       [this, &bucket = transfer.bucket()] {
                         return str(place_of(group_), ": all-reduce ", bucket.index + 1, " of ", bucket.count,
                                    " in this backward pass (", bucket.name(), ", ",
                                    to_string(bucket.bytes()), ")");
                       },
                   .ready_ns = ready_ns(index)});
}

void GradientReducer::set_comm_hook(CommHook hook) {
  const std::lock_guard lock(mutex_);
  if (hook_.run) throw UsageError("register_comm_hook was called before; a model has one communication hook");
  if (began_) throw UsageError("register_comm_hook must be called before the first backward pass");
  verify_same_hook(hook.name, group_);
  transfers_.clear();
  hook_ = std::move(hook);
  expect_reverse_order();
}

namespace {

constexpr const char* kOrder = "order";
constexpr const char* kHook = "hook";
constexpr const char* kOfHook = "hook/";

}  // namespace

CommState GradientReducer::communication_state() const {
  const std::lock_guard lock(mutex_);
  CommState state;
  if (!adopted_order_.empty()) state[kOrder] = numbers_to_tensor(adopted_order_);
  state[kHook] = text_to_tensor(hook_.name);
  if (!hook_.save) return state;
  for (const auto& [name, tensor] : hook_.save()) state[kOfHook + name] = tensor;
  return state;
}

std::string GradientReducer::communication_incompatibility(const CommState& state) const {
  if (const auto order = state.find(kOrder); order != state.end()) {
    std::vector<std::size_t> sorted = tensor_to_numbers(order->second);
    std::sort(sorted.begin(), sorted.end());
    for (std::size_t i = 0; i < std::max(sorted.size(), dense_.size()); ++i) {
      if (sorted.size() == dense_.size() && sorted[i] == i) continue;
      return str("is of a model with ", sorted.size(), " trained parameters, this one has ", dense_.size());
    }
  }
  return codec_mismatch(text_in(state, kHook), hook_.name);
}

void GradientReducer::load_communication_state(const CommState& state) {
  const std::lock_guard lock(mutex_);
  if (in_pass_) throw UsageError("load_communication_state was called during a backward pass");
  if (const std::string incompatibility = communication_incompatibility(state); !incompatibility.empty())
    throw DataError("the state of communication " + incompatibility);
  if (hook_.restore) hook_.restore(entries_behind(kOfHook, state));
  const auto order = state.find(kOrder);
  if (order == state.end()) return;
  adopted_order_ = tensor_to_numbers(order->second);
  lay_out(adopted_order_);
}

void GradientReducer::arrived(std::size_t index) {
  std::shared_ptr<PassEnd> end;  // outlives the lock, because the destructor of PassEnd may acquire it
  const std::lock_guard lock(mutex_);
  check_gradient(index);
  used_[index] = true;
  began_ = true;
  if (no_sync_depth_ > 0) return;
  if (!in_pass_) {
    end = std::make_shared<PassEnd>(shared_from_this());
    torch::autograd::Engine::get_default_engine().queue_callback([end] { end->reached(); });
    begin_pass();
  }
  if (ready_[index]) {
    throw Error(str("parameter '", parameters_[index].name,
                    unused_here_[index]
                        ? "' got a gradient, but none in the first step; with static_graph the same "
                          "parameters must be used in every step"
                        : "' got a second gradient in one backward pass; put all but the last of "
                          "several overlapping backward passes under no_sync()"));
  }
  ready_[index] = true;
  if (!is_dense(index)) return;
  arrival_.push_back(index);
  const Place place = places_[index];
  transfers_[place.bucket]->take(place.member);
  if (add(place.bucket)) complete(place.bucket, place.bucket + 1);
  queue_.poll();
}

void GradientReducer::take_missing(std::size_t parameter) {
  const Place place = places_[parameter];
  transfers_[place.bucket]->take_missing(place.member);
  if (add(place.bucket)) complete(place.bucket, place.bucket + 1);
  queue_.poll();
}

void GradientReducer::synchronize_without_backward() {
  const std::lock_guard lock(mutex_);
  if (no_sync_depth_ > 0) throw UsageError("synchronize_without_backward was called under no_sync()");
  if (in_pass_) throw UsageError("synchronize_without_backward was called during a backward pass");
  try {
    begin_pass();
  } catch (...) {
    fail_pass();
    throw;
  }
  end_pass(/*had_backward=*/false);
}

void GradientReducer::change_no_sync_depth(int by) {
  const std::lock_guard lock(mutex_);
  no_sync_depth_ += by;
}

bool GradientReducer::synchronises() const {
  const std::lock_guard lock(mutex_);
  return no_sync_depth_ == 0;
}

void GradientReducer::begin_pass() {
  // The layout changes here, not when the order was learnt: until now the optimizer's gradients were views of
  // the old buckets.
  if (std::exchange(order_is_new_, false)) lay_out(adopted_order_);
  begin(gradients_);
  for (const auto& transfer : transfers_) transfer->begin();
  in_pass_ = true;
  began_ = true;
  trace_ = {};
  weight_is_known_ = false;
  trace_.first_gradient_ns = monotonic_ns();
  arrival_.clear();
  ready_ = unused_here_;
  for (std::size_t i = 0; i < dense_.size(); ++i) {
    if (unused_here_[i]) take_missing(i);
  }
}

const GradientWeight& GradientReducer::weight() {
  if (weight_is_known_) return announced_weight(divide_by_active_);
  const std::int64_t begin = monotonic_ns();
  const GradientWeight& weight = announced_weight(divide_by_active_);
  weight_is_known_ = true;
  const bool within_backward = trace_.backward_end_ns == 0;
  if (within_backward) trace_.waited_ns = monotonic_ns() - begin;
  return weight;
}

void GradientReducer::end_pass(bool had_backward) {
  trace_.backward_end_ns = monotonic_ns();
  try {
    reject_unfrozen();
    std::vector<bool> untouched(parameters_.size());
    resolve_missing(had_backward, untouched);
    const auto first_sparse = untouched.begin() + static_cast<std::ptrdiff_t>(dense_.size());
    sparse_.combine(weight(), {first_sparse, untouched.end()});
    for (const auto& transfer : transfers_) transfer->finish(untouched);
    trace_.end_ns = monotonic_ns();
    trace_.buckets = queue_.take_spans();
    for (TraceSpan& span : trace_.buckets) span.unit = layers_[static_cast<std::size_t>(*span.bucket)];
    if (adopted_order_.empty() && (options_.static_graph || !options_.find_unused_parameters)) {
      adopt_arrival_order();
    }
    ++synchronised_passes_;
    const bool check_due =
        options_.check_parameters_every > 0 && synchronised_passes_ % options_.check_parameters_every == 0;
    // A rank that has run out of data makes no optimizer steps, so its parameters differ until the end.
    if (check_due && announcement_->everyone_active()) {
      verify_same_values(joined(parameters_, frozen_),
                         str("after ", synchronised_passes_ - 1, " synchronised steps"), group_);
    }
    if (announcement_->everyone_active()) drift_->after_pass(announcement_->carries_samples());
  } catch (...) {
    fail_pass();
    throw;
  }
  in_pass_ = false;
  used_.assign(parameters_.size(), false);
  announcement_->clear();
}

void GradientReducer::abandon_pass() noexcept {
  const std::lock_guard lock(mutex_);
  if (in_pass_) fail_pass();
}

void GradientReducer::fail_pass() noexcept {
  in_pass_ = false;
  queue_.abandon();
  for (const auto& transfer : transfers_) transfer->abandon();
  announcement_->clear();
}

void GradientReducer::check_gradient(std::size_t index) const {
  const ModelTensor& parameter = parameters_[index];
  const at::Tensor& gradient = parameter.tensor.grad();
  if (gradient.layout() != at::kStrided && is_dense(index)) {
    throw UsageError(str("the gradient of parameter '", parameter.name,
                         "' is sparse, which across ranks only those of Embedding and EmbeddingBag with "
                         "sparse(true) can be; make its gradient dense"));
  }
  const auto& [dtype, elements] = expected_[index];
  if (gradient.scalar_type() != dtype || gradient.numel() != elements) {
    throw UsageError(str("parameter '", parameter.name, "' was ", c10::toString(dtype), " with ", elements,
                         " elements when it was handed to DistributedDataParallel and now has a gradient ",
                         describe_shape(gradient), "; convert the model first"));
  }
}

void GradientReducer::reject_unfrozen() const {
  for (const ModelTensor& parameter : frozen_) {
    if (!parameter.tensor.requires_grad()) continue;
    throw UsageError(
        str("parameter '", parameter.name,
            "' requires a gradient now, and did not when the model was prepared: its gradients "
            "are not combined, and ranks would drift apart. Set requires_grad before prepare() or "
            "before DistributedDataParallel is made; to thaw it later, destroy that object and "
            "make it anew"));
  }
}

void GradientReducer::resolve_missing(bool had_backward, std::vector<bool>& untouched) {
  std::vector<std::size_t> missing;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!ready_[i]) missing.push_back(i);
  }
  const bool learns_static_graph = options_.static_graph && !static_graph_known_;
  if (had_backward && !missing.empty() && !options_.find_unused_parameters && !learns_static_graph) {
    throw UsageError(
        str("rank ", group_.rank(), ": backward is over, but ", missing.size(), " of ", parameters_.size(),
            " parameters got no gradient: ", names_of(parameters_, missing),
            options_.static_graph
                ? "; with static_graph the same parameters must be used in every step"
                : "; if that is intended, set find_unused_parameters (--find-unused-parameters), or "
                  "static_graph (static-graph) when it is the same in every step"));
  }
  for (const std::size_t index : missing) {
    if (is_dense(index)) take_missing(index);
  }
  // Runs before any other collective of this pass, so that all ranks have the same order.
  queue_.start_all();
  if (static_graph_known_) {
    untouched = unused_anywhere_;
  } else if (options_.find_unused_parameters || options_.static_graph) {
    exchange_usage(had_backward, untouched);
  }
}

void GradientReducer::exchange_usage(bool had_backward, std::vector<bool>& untouched) {
  std::vector<bool> flags = used_;
  flags.push_back(had_backward);
  const std::vector<int> ranks = count_ranks(flags, group_);
  for (std::size_t i = 0; i < parameters_.size(); ++i) untouched[i] = ranks[i] == 0;
  // The static graph is known once every rank has run a backward pass.
  if (options_.static_graph && ranks.back() == group_.size()) {
    static_graph_known_ = true;
    unused_anywhere_ = untouched;
    for (std::size_t i = 0; i < parameters_.size(); ++i) unused_here_[i] = !used_[i];
  }
}

void GradientReducer::adopt_arrival_order() {
  const auto count = static_cast<std::int64_t>(dense_.size());
  at::Tensor order = at::zeros({count + 1}, at::kLong);
  auto entries = order.accessor<std::int64_t, 1>();
  // Uses rank 0's order. A rank 0 without a backward pass has no order yet.
  if (group_.rank() == 0 && !arrival_.empty()) {
    std::vector<bool> arrived(dense_.size());
    std::int64_t next = 0;
    entries[next++] = 1;
    for (const std::size_t index : arrival_) {
      arrived[index] = true;
      entries[next++] = static_cast<std::int64_t>(index);
    }
    for (std::int64_t i = count - 1; i >= 0; --i) {
      if (!arrived[static_cast<std::size_t>(i)]) entries[next++] = i;
    }
  }
  std::vector<at::Tensor> message = {order.to(group_.traits().control_device())};
  group_.backend()->broadcast(message)->wait();
  order.copy_(message.front());
  if (entries[0] == 0) return;
  std::vector<std::size_t> agreed;
  for (std::int64_t i = 1; i <= count; ++i) agreed.push_back(static_cast<std::size_t>(entries[i]));
  adopted_order_ = std::move(agreed);
  order_is_new_ = true;
}

}  // namespace rondo
