#include "rondo/parallel/sharded/forbidden_access.h"

#include <torch/headeronly/version.h>

#include <optional>

namespace rondo {
namespace {

// libtorch before 2.13 can set the flag with which an access throws, and has no call that clears it.
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 13

// The arguments of an explicit instantiation may name private members.
template <bool c10::StorageImpl::*Flag>
struct AccessFlag {
  friend bool& throws_on_access(c10::StorageImpl& storage) { return storage.*Flag; }
};
bool& throws_on_access(c10::StorageImpl& storage);
template struct AccessFlag<&c10::StorageImpl::throw_on_immutable_data_ptr_>;

void clear_access_error(c10::StorageImpl& storage) {
  throws_on_access(storage) = false;
  storage.get_extra_meta().custom_data_ptr_error_msg_ = std::nullopt;
}

#else

void clear_access_error(c10::StorageImpl& storage) { storage.clear_data_ptr_access_error_msg_(); }

#endif

}  // namespace

void forbid_access(c10::StorageImpl& storage, const std::string& message) {
  storage.release_data_and_set_meta_custom_data_ptr_error_msg_(message);
}

void permit_access(c10::StorageImpl& storage) { clear_access_error(storage); }

}  // namespace rondo
