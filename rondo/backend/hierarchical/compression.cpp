#include "rondo/backend/hierarchical/compression.h"

#include <iterator>

#include "rondo/base/log.h"

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
  if (found != entries_.end()) {
    found->second.last_use = ++uses_;
    return found->second.compression;
  }
  auto made = make(buffer.numel());
  entries_.emplace(key,
                   Entry{c10::weak_intrusive_ptr<c10::StorageImpl>(storage), made, buffer.numel(), ++uses_});
  return made;
}

std::shared_ptr<Compression> CompressionTable::make(std::int64_t elements) {
  auto made = std::make_shared<Compression>();
  made->encoder = collective::make_codec(codec_);
  made->decoder = collective::make_codec(codec_);
  if (restored_.empty()) return made;
  if (restored_.front().elements != elements) {
    log::warning("backend hierarchical: the memory of codec ", codec_, " (error feedback) is of a buffer of ",
                 restored_.front().elements, " elements, and one of ", elements,
                 " is reduced; what is left of it begins anew");
    restored_.clear();
    return made;
  }
  made->residual = std::move(restored_.front().residual);
  made->sum_residual = std::move(restored_.front().sum_residual);
  restored_.pop_front();
  return made;
}

std::vector<CompressionTable::Memory> CompressionTable::save() {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [](const auto& entry) { return entry.second.storage.expired(); });
  std::map<std::uint64_t, const Entry*> by_use;
  for (const auto& [key, entry] : entries_) by_use.emplace(entry.last_use, &entry);
  std::vector<Memory> memories;
  for (const auto& [use, entry] : by_use)
    memories.push_back({entry->elements, entry->compression->residual, entry->compression->sum_residual});
  return memories;
}

void CompressionTable::restore(std::vector<Memory> memories) {
  const std::lock_guard lock(mutex_);
  entries_.clear();
  restored_.assign(std::make_move_iterator(memories.begin()), std::make_move_iterator(memories.end()));
}

}  // namespace rondo::hierarchical
