#include "rondo/parallel/sharded/flat_parameters.h"

#include <torch/types.h>
#include <torch/utils.h>

#include "rondo/base/text.h"
#include "rondo/memory/scope.h"

namespace rondo {

namespace {

// Makes every access to the storage an error with this message, until `message` is empty.
template <class Storage>
void forbid_access(Storage& storage, const std::string& message) {
  // Older libtorch cannot take the prohibition back; there an access is a null pointer's.
  if constexpr (requires { storage.clear_data_ptr_access_error_msg_(); }) {
    if (message.empty()) {
      storage.clear_data_ptr_access_error_msg_();
    } else {
      storage.release_data_and_set_meta_custom_data_ptr_error_msg_(message);
    }
  }
}

}  // namespace

FlatParameters::FlatParameters(std::string unit, std::vector<ModelTensor> parameters, FlatLayout layout,
                               int rank, Memory memory, at::Tensor mapped_flat, bool fills)
    : unit_(std::move(unit)),
      parameters_(std::move(parameters)),
      layout_(std::move(layout)),
      rank_(rank),
      memory_(memory),
      flat_(std::move(mapped_flat)) {
  const at::NoGradGuard no_grad;
  const MemoryScope scope(MemoryCategory::parameters, unit_);
  const at::TensorOptions options = parameters_.front().tensor.options().requires_grad(false);
  if (!flat_.defined()) flat_ = at::empty({layout_.flat_elements()}, options);
  bytes_ = flat_.nbytes();
  if (fills) flat_.zero_();  // the padding too
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& parameter = parameters_[i].tensor;
    const ElementRange place = layout_.place(i);
    const at::Tensor view = flat_.narrow(0, place.begin, place.size()).view(parameter.sizes());
    if (fills) view.copy_(parameter);
    // The values live in the flat buffer from here on; the old memory is freed.
    parameter.set_data(view);
  }
  const ElementRange own = layout_.shard(rank_);
  shard_ = flat_.narrow(0, own.begin, own.size());
  if (memory_ == Memory::gathered) shard_ = shard_.clone();
}

void FlatParameters::adopt_values() {
  if (memory_ != Memory::gathered) return;
  const at::NoGradGuard no_grad;
  const ElementRange own = layout_.shard(rank_);
  shard_.copy_(flat_.narrow(0, own.begin, own.size()));
}

at::Tensor FlatParameters::block_in_flat(int rank, std::size_t block) const {
  const ElementRange range = layout_.block(block);
  return flat_.narrow(0, layout_.shard(rank).begin + range.begin, range.size());
}

at::Tensor FlatParameters::block_in_shard(std::size_t block) const {
  const ElementRange range = layout_.block(block);
  return shard_.narrow(0, range.begin, range.size());
}

void FlatParameters::allocate(BufferPool& buffers) {
  if (memory_ != Memory::gathered || allocated_) return;
  // All views, also those that autograd saved, share this storage.
  c10::StorageImpl& storage = *flat_.storage().unsafeGetStorageImpl();
  forbid_access(storage, "");
  storage.set_data_ptr_noswap(
      buffers.take(bytes_, flat_.device(), {MemoryCategory::communication, memory_unit(unit_)}));
  allocated_ = true;
}

void FlatParameters::release(BufferPool& buffers) {
  if (memory_ != Memory::gathered || !allocated_) return;
  c10::StorageImpl& storage = *flat_.storage().unsafeGetStorageImpl();
  buffers.give_back(storage.set_data_ptr(c10::DataPtr(nullptr, flat_.device())), bytes_);
  forbid_access(storage,
                str("a parameter of unit '", unit_, "' (", parameters_.front().name,
                    ", ...) was used while only a shard of it is on this rank: it is gathered only "
                    "while its own unit runs. Use it inside the unit, put the module that uses it and "
                    "the unit into one unit, or give the unit a strategy that keeps parameters "
                    "(zero2)"));
  allocated_ = false;
}

}  // namespace rondo
