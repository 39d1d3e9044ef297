#include "rondo/parallel/sharded/flat_parameters.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>

#include "rondo/base/arithmetic.h"
#include "rondo/base/text.h"
#include "rondo/memory/scope.h"
#include "rondo/parallel/sharded/forbidden_access.h"
#include "rondo/parallel/sharded/unit_memory.h"

namespace rondo {
namespace {

std::int64_t aligned(std::int64_t elements) {
  return divide_rounding_up(elements, FlatLayout::kAlignment) * FlatLayout::kAlignment;
}

}  // namespace

FlatLayout::FlatLayout(std::span<const std::int64_t> parameter_elements, int ranks,
                       std::int64_t segment_elements)
    : ranks_(ranks) {
  std::int64_t end = 0;
  for (const std::int64_t elements : parameter_elements) {
    places_.push_back({end, end + elements});
    end = aligned(end + elements);
  }
  shard_elements_ = aligned(std::max<std::int64_t>(1, divide_rounding_up(end, ranks)));
  segment_shard_elements_ = shard_elements_;
  if (segment_elements > 0) {
    // Segments are equally long: a short last one would pay a message's latency for few bytes.
    const std::int64_t wanted = std::max<std::int64_t>(1, segment_elements / ranks);
    const std::int64_t count = std::max<std::int64_t>(1, (shard_elements_ + wanted / 2) / wanted);
    segment_shard_elements_ = aligned(divide_rounding_up(shard_elements_, count));
  }
  segments_ = static_cast<std::size_t>(divide_rounding_up(shard_elements_, segment_shard_elements_));
}

FlatLayout::Slice FlatLayout::slice(std::size_t index, int rank) const {
  const ElementRange place = places_[index];
  const ElementRange owned = shard(rank);
  const std::int64_t begin = std::clamp(owned.begin, place.begin, place.end);
  const std::int64_t end = std::clamp(owned.end, place.begin, place.end);
  if (begin >= end) return {};
  return {{begin - place.begin, end - place.begin}, begin - owned.begin};
}

ElementRange FlatLayout::segment(std::size_t index) const {
  const std::int64_t begin = static_cast<std::int64_t>(index) * segment_shard_elements_;
  return {begin, std::min(shard_elements_, begin + segment_shard_elements_)};
}

FlatParameters::FlatParameters(std::vector<ModelTensor> parameters, FlatLayout layout, Spec spec)
    : parameters_(std::move(parameters)),
      layout_(std::move(layout)),
      spec_(std::move(spec)),
      unit_(memory_unit(spec_.unit)),
      flat_(spec_.mapped_flat),
      own_(spec_.owns_all ? ElementRange{0, layout_.flat_elements()} : layout_.shard(spec_.rank)) {
  const at::NoGradGuard no_grad;
  const MemoryScope scope(MemoryCategory::parameters, unit_);
  const at::TensorOptions masters = parameters_.front().tensor.options().requires_grad(false);
  if (!flat_.defined()) flat_ = at::empty({layout_.flat_elements()}, masters.dtype(spec_.compute));
  bytes_ = flat_.nbytes();
  const bool apart = spec_.memory == Memory::gathered || masters.dtype() != flat_.dtype();
  if (!apart) {
    shard_ = flat_.narrow(0, own_.begin, own_.size());
  } else if (spec_.files != nullptr) {
    shard_ = spec_.files->zeros(own_.size(), masters, str("the parameters of unit '", spec_.unit, "'"));
  } else {
    shard_ = at::zeros({own_.size()}, masters);
  }
  if (spec_.fills) flat_.zero_();  // whole buffer, including the padding
  const at::Tensor of_model = as_the_models(flat_);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& parameter = parameters_[i].tensor;
    if (apart) {
      const FlatLayout::Slice slice = own_slice(i);
      shard_.narrow(0, slice.in_shard, slice.of_parameter.size())
          .copy_(parameter.flatten().narrow(0, slice.of_parameter.begin, slice.of_parameter.size()));
    }
    const ElementRange place = layout_.place(i);
    const at::Tensor view = of_model.narrow(0, place.begin, place.size()).view(parameter.sizes());
    if (spec_.fills) view.copy_(parameter);
    // The values are in the flat buffer from here on; the old memory is freed.
    parameter.set_data(view);
  }
}

// Uses a second storage because access is forbidden per storage, and the optimizer's access must stay
// permitted.
at::Tensor FlatParameters::as_the_models(const at::Tensor& flat) {
  model_storage_ = flat.storage();
  if (spec_.memory != Memory::whole || bytes_ == 0) return flat;
  auto owner = std::make_unique<c10::Storage>(flat.storage());
  c10::DataPtr memory(
      flat.mutable_data_ptr(), owner.get(), [](void* held) { delete static_cast<c10::Storage*>(held); },
      flat.device());
  owner.release();  // NOLINT(bugprone-unused-return-value): the pointer above deletes it
  model_storage_ = c10::Storage(c10::Storage::use_byte_size_t(), bytes_, std::move(memory),
                                /*allocator=*/nullptr, /*resizable=*/false);
  return at::empty({0}, flat.options()).set_(model_storage_, 0, flat.sizes(), flat.strides());
}

void FlatParameters::conceal() {
  if (spec_.memory != Memory::whole || concealed_ || bytes_ == 0) return;
  forbid_access(*model_storage_.unsafeGetStorageImpl(),
                str("a parameter of unit '", spec_.unit, "' (", parameters_.front().name,
                    ", ...) was read after step() and before begin_step(), where it is out of date on this "
                    "rank. Call prepared->unshard(), or make a rondo::SummonFullParams, on all ranks before "
                    "evaluating, saving or reading the model, and call begin_step() before the forward pass "
                    "of a step"));
  concealed_ = true;
}

void FlatParameters::reveal() {
  if (std::exchange(concealed_, false)) permit_access(*model_storage_.unsafeGetStorageImpl());
}

const ModelTensor* FlatParameters::moved() const {
  for (const ModelTensor& parameter : parameters_) {
    if (parameter.tensor.storage().unsafeGetStorageImpl() != model_storage_.unsafeGetStorageImpl())
      return &parameter;
  }
  return nullptr;
}

const ModelTensor* FlatParameters::converted() const {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& tensor = parameters_[i].tensor;
    if (tensor.scalar_type() != flat_.scalar_type() || tensor.numel() != layout_.place(i).size())
      return &parameters_[i];
  }
  return nullptr;
}

FlatLayout::Slice FlatParameters::own_slice(std::size_t index) const {
  if (!spec_.owns_all) return layout_.slice(index, spec_.rank);
  const ElementRange place = layout_.place(index);
  return {{0, place.size()}, place.begin};
}

at::Tensor FlatParameters::optimized(std::size_t index) const {
  const FlatLayout::Slice slice = own_slice(index);
  const at::Tensor part = shard_.narrow(0, slice.in_shard, slice.of_parameter.size());
  return (spec_.owns_all ? part.view(parameters_[index].tensor.sizes()) : shaped(part, index))
      .variable_data();
}

at::Tensor FlatParameters::shaped(const at::Tensor& part, std::size_t index) const {
  std::vector<std::int64_t> sizes(
      static_cast<std::size_t>(std::max<std::int64_t>(1, parameters_[index].tensor.dim())), 1);
  sizes.front() = part.numel();
  return part.view(sizes);
}

void FlatParameters::publish() {
  if (!has_masters()) return;
  const at::NoGradGuard no_grad;
  flat_.narrow(0, own_.begin, own_.size()).copy_(shard_);
}

void FlatParameters::reload_shards() {
  if (!apart() || !allocated_) return;
  const at::NoGradGuard no_grad;
  const at::Tensor now = flat_.narrow(0, own_.begin, own_.size());
  if (!has_masters()) {
    shard_.copy_(now);
    return;
  }
  const at::Tensor unchanged = shard_.to(now.scalar_type()) == now;
  shard_.copy_(at::where(unchanged, shard_, now.to(shard_.scalar_type())));
}

Shard FlatParameters::shard(std::size_t index, const at::Tensor& local) const {
  const ModelTensor& parameter = parameters_[index];
  if (spec_.owns_all) return full_shard(parameter.name, local);
  return flat_shard(parameter.name, parameter.tensor.sizes().vec(), own_slice(index).of_parameter.begin,
                    local);
}

void FlatParameters::give_back() {
  for (ModelTensor& parameter : parameters_) {
    const at::Tensor fresh = at::zeros(parameter.tensor.sizes(), shard_.options());
    parameter.tensor.set_data(fresh);
  }
}

at::Tensor FlatParameters::segment_in_flat(int rank, std::size_t segment) const {
  const ElementRange range = layout_.segment(segment);
  return flat_.narrow(0, layout_.shard(rank).begin + range.begin, range.size());
}

at::Tensor FlatParameters::segment_to_send(std::size_t segment) const {
  if (has_masters()) return segment_in_flat(spec_.rank, segment);
  const ElementRange range = layout_.segment(segment);
  return shard_.narrow(0, range.begin, range.size());
}

void FlatParameters::keep(int first, int count, BufferPool& buffers) {
  if (!kept_.defined()) {
    kept_ = buffers.take(layout_.shard_elements() * count, flat_.options(),
                         {MemoryCategory::communication, unit_});
  }
  kept_.copy_(flat_.narrow(0, layout_.shard(first).begin, kept_.numel()));
}

at::Tensor FlatParameters::segment_in_kept(int index, std::size_t segment) const {
  const ElementRange range = layout_.segment(segment);
  return kept_.narrow(0, layout_.shard(index).begin + range.begin, range.size());
}

void FlatParameters::drop_kept(BufferPool& buffers) {
  if (kept_.defined()) buffers.give_back(std::exchange(kept_, {}));
}

void FlatParameters::allocate(BufferPool& buffers) {
  if (spec_.memory != Memory::gathered || allocated_) return;
  // All views, including those that autograd saved, share this storage.
  c10::StorageImpl& storage = *flat_.storage().unsafeGetStorageImpl();
  permit_access(storage);
  storage.set_data_ptr_noswap(buffers.take(bytes_, flat_.device(), {MemoryCategory::communication, unit_}));
  allocated_ = true;
}

void FlatParameters::release(BufferPool& buffers) {
  if (spec_.memory != Memory::gathered || !allocated_) return;
  c10::StorageImpl& storage = *flat_.storage().unsafeGetStorageImpl();
  buffers.give_back(storage.set_data_ptr(c10::DataPtr(nullptr, flat_.device())), bytes_);
  forbid_access(storage,
                str("a parameter of unit '", spec_.unit, "' (", parameters_.front().name,
                    ", ...) was used while only a shard of it is on this rank: it is gathered only "
                    "while its own unit runs. Use it inside the unit, put the module that uses it and "
                    "the unit into one unit, or give the unit a strategy that keeps parameters "
                    "(zero2). Call begin_step() before the forward pass of a step, and "
                    "prepared->unshard() on all ranks before evaluating or saving the model"));
  allocated_ = false;
}

}  // namespace rondo
