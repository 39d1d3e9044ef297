#include "rondo/format/checksum_thread.h"

#include <algorithm>
#include <semaphore>
#include <system_error>
#include <thread>

namespace rondo {
namespace {

// Waking a thread costs as much as the checksum of so many bytes.
constexpr std::size_t kSmall = std::size_t{256} << 10;
// So many bytes stay in a core's cache for the second checksum.
constexpr std::size_t kBlock = std::size_t{128} << 10;

void add_to_both(std::span<const std::byte> data, Checksum& file, Checksum& tensor) {
  while (!data.empty()) {
    const std::span<const std::byte> block = data.first(std::min(data.size(), kBlock));
    file.update(block);
    tensor.update(block);
    data = data.subspan(block.size());
  }
}

}  // namespace

struct ChecksumThread::Worker {
  std::span<const std::byte> data;
  Checksum* file = nullptr;  // null: the end
  Checksum* tensor = nullptr;
  std::binary_semaphore given{0};
  std::binary_semaphore done{0};
  std::thread thread{[this] {
    for (;;) {
      given.acquire();
      if (file == nullptr) return;
      add_to_both(data, *file, *tensor);
      done.release();
    }
  }};

  ~Worker() {
    file = nullptr;
    given.release();
    thread.join();
  }
};

ChecksumThread::ChecksumThread() = default;
ChecksumThread::~ChecksumThread() { wait(); }

void ChecksumThread::begin(std::span<const std::byte> data, Checksum& file, Checksum& tensor) {
  if (data.size() < kSmall) {
    add_to_both(data, file, tensor);
    return;
  }
  try {
    if (!worker_) worker_ = std::make_unique<Worker>();
  } catch (const std::system_error&) {  // no thread is to be had
    add_to_both(data, file, tensor);
    return;
  }
  worker_->data = data;
  worker_->file = &file;
  worker_->tensor = &tensor;
  waits_ = true;
  worker_->given.release();
}

void ChecksumThread::wait() {
  if (!waits_) return;
  worker_->done.acquire();
  waits_ = false;
}

}  // namespace rondo
