#include "rondo/format/checksum.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <new>
#include <semaphore>
#include <string_view>
#include <system_error>
#include <thread>

namespace rondo {
namespace {

std::string to_hex(XXH128_hash_t hash) {
  constexpr std::string_view digits = "0123456789abcdef";
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  std::string text;
  for (const unsigned char byte : canonical.digest) {
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

}  // namespace

Checksum::Checksum() : state_(XXH3_createState()) {
  if (!state_) throw std::bad_alloc();
  XXH3_128bits_reset(state_.get());
}

void Checksum::Free::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

void Checksum::update(std::span<const std::byte> data) {
  if (!data.empty()) XXH3_128bits_update(state_.get(), data.data(), data.size());
}

std::string Checksum::hex() const { return to_hex(XXH3_128bits_digest(state_.get())); }

std::string checksum_hex(std::span<const std::byte> data) {
  return to_hex(XXH3_128bits(data.data(), data.size()));
}

namespace {

// Size below which waking a thread costs more than the checksum.
constexpr std::size_t kSmall = std::size_t{256} << 10;
// Block size that stays in a core's cache for the second checksum.
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
  Checksum* file = nullptr;  // null: stop
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
  } catch (const std::system_error&) {  // the system cannot start a thread
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
