#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <typeindex>

namespace rondo {

// A table of objects that the communicators of one job share on one rank, one of each type. Only the users of
// an object keep it alive. Any thread.
class JobObjects {
 public:
  // Returns the object of type `T`, or null if there is none or it has no users left.
  template <class Object>
  std::shared_ptr<Object> find() const {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(typeid(Object));
    return found == objects_.end() ? nullptr : std::static_pointer_cast<Object>(found->second.lock());
  }

  // Registers `object`, replacing the one of its type.
  template <class Object>
  void set(const std::shared_ptr<Object>& object) {
    const std::lock_guard lock(mutex_);
    objects_[typeid(Object)] = object;
  }

 private:
  mutable std::mutex mutex_;  // protects objects_
  std::map<std::type_index, std::weak_ptr<void>> objects_;
};

}  // namespace rondo
