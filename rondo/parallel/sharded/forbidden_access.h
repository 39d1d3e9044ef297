#pragma once

#include <c10/core/StorageImpl.h>

#include <string>

namespace rondo {

// Whether this libtorch can take a prohibition back: older versions cannot.
template <class Storage = c10::StorageImpl>
constexpr bool can_forbid_access() {
  return requires(Storage & storage) { storage.clear_data_ptr_access_error_msg_(); };
}

// Makes every access to the data of the storage an error with this message; an empty message permits it
// again. Does nothing where the libtorch cannot.
template <class Storage>
void forbid_access(Storage& storage, const std::string& message) {
  if constexpr (can_forbid_access<Storage>()) {
    if (message.empty()) {
      storage.clear_data_ptr_access_error_msg_();
    } else {
      storage.release_data_and_set_meta_custom_data_ptr_error_msg_(message);
    }
  }
}

}  // namespace rondo
