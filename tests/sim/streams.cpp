#include "tests/sim/streams.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <utility>

#include "tests/sim/device.h"

namespace rondo::sim {
namespace {

using Key = std::pair<c10::DeviceIndex, c10::StreamId>;

struct Streams {
  std::mutex mutex;                    // protects works
  std::map<Key, StreamWorks> works;    // by stream: works before its next operation
  std::atomic<std::size_t> known = 0;  // number of streams in `works`, so that most operators need no lock
};

// Never destroyed: other threads may launch while the process ends.
Streams& streams() {
  static auto* const instance = new Streams;
  return *instance;
}

Key key_of(const c10::Stream& stream) { return {stream.device_index(), stream.id()}; }

void drop_ended(StreamWorks& works) {
  std::erase_if(works, [](const auto& work) { return work->has_ended() && !work->error(); });
}

}  // namespace

void StreamWork::end(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  if (has_ended_) return;
  has_ended_ = true;
  error_ = std::move(error);
  changed_.notify_all();
}

bool StreamWork::has_ended() const {
  const std::lock_guard lock(mutex_);
  return has_ended_;
}

std::exception_ptr StreamWork::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

void StreamWork::wait() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return has_ended_; });
  if (error_) std::rethrow_exception(error_);
}

bool StreamWork::wait_for(std::chrono::milliseconds timeout) const {
  std::unique_lock lock(mutex_);
  const bool in_time = changed_.wait_for(lock, timeout, [this] { return has_ended_; });
  if (error_) std::rethrow_exception(error_);
  return in_time;
}

StreamWorks works_before(const c10::Stream& stream) {
  Streams& all = streams();
  if (all.known == 0) return {};
  const std::lock_guard lock(all.mutex);
  const auto found = all.works.find(key_of(stream));
  if (found == all.works.end()) return {};
  drop_ended(found->second);
  const StreamWorks works = found->second;
  if (works.empty()) all.works.erase(found);
  all.known = all.works.size();
  return works;
}

void put_behind(const c10::Stream& stream, const StreamWorks& works) {
  if (works.empty()) return;
  Streams& all = streams();
  const std::lock_guard lock(all.mutex);
  StreamWorks& before = all.works[key_of(stream)];
  drop_ended(before);
  before.insert(before.end(), works.begin(), works.end());
  all.known = all.works.size();
}

// An error persists, as on a GPU.
void finish(const c10::Stream& stream) {
  for (const auto& work : works_before(stream)) work->wait();
}

void finish_device(c10::DeviceIndex index) {
  std::vector<c10::Stream> of_device;
  {
    Streams& all = streams();
    const std::lock_guard lock(all.mutex);
    for (const auto& [key, works] : all.works) {
      if (key.first == index)
        of_device.emplace_back(c10::Stream::UNSAFE, c10::Device(kSim, key.first), key.second);
    }
  }
  for (const c10::Stream& stream : of_device) finish(stream);
}

}  // namespace rondo::sim
