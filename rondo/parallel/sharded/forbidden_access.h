#pragma once

#include <c10/core/StorageImpl.h>

#include <string>

namespace rondo {

// Makes every access to the data of the storage an error with this message.
void forbid_access(c10::StorageImpl& storage, const std::string& message);

// Takes forbid_access() back.
void permit_access(c10::StorageImpl& storage);

}  // namespace rondo
