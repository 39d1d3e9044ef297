#include "rondo/backend/hierarchical/compression.h"

namespace rondo::hierarchical {

CompressionTable::CompressionTable(std::string codec) : codec_(codec == "none" ? "" : std::move(codec)) {
  if (active()) collective::make_codec(codec_);  // throws for an unknown one now, not in the first operation
}

std::shared_ptr<Compression> CompressionTable::find(const at::Tensor& buffer) {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [](const auto& entry) { return entry.second.storage.expired(); });
  const c10::intrusive_ptr<c10::StorageImpl> storage = buffer.storage().getWeakStorageImpl().lock();
  const Key key{storage.get(), buffer.storage_offset(), buffer.numel()};
  const auto found = entries_.find(key);
  if (found != entries_.end()) return found->second.compression;
  auto made = std::make_shared<Compression>();
  made->encoder = collective::make_codec(codec_);
  made->decoder = collective::make_codec(codec_);
  entries_.emplace(key, Entry{c10::weak_intrusive_ptr<c10::StorageImpl>(storage), made});
  return made;
}

}  // namespace rondo::hierarchical
