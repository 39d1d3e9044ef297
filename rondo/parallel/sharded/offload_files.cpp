#include "rondo/parallel/sharded/offload_files.h"

#include <torch/optim/optimizer.h>
#include <torch/types.h>
#include <unistd.h>

#include <cstring>
#include <memory>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/memory/file_memory.h"
#include "rondo/nn/optimizer_fields.h"

namespace rondo {
namespace {

// Of tensors behind one another in a file: a cache line.
constexpr std::size_t kFileAlignment = 64;

using Holder = std::shared_ptr<FileMemory>;

void let_go(void* holder) { delete static_cast<Holder*>(holder); }

// A part of the file that keeps it mapped.
c10::DataPtr part_of_file(const Holder& file, std::size_t offset) {
  return {file->data() + offset, new Holder(file), &let_go, c10::Device(c10::kCPU)};
}

bool in_file(const at::Tensor& tensor) { return tensor.storage().data_ptr().get_deleter() == &let_go; }

std::size_t aligned(std::size_t bytes) {
  return (bytes + kFileAlignment - 1) / kFileAlignment * kFileAlignment;
}

// Counters of steps and the like are no tensors, and what an option switches off is undefined.
template <class Kind>
void collect(torch::optim::Optimizer& optimizer, std::vector<at::Tensor>& tensors) {
  for (const auto& [parameter, state] : optimizer.state()) {
    visit_state(static_cast<typename Kind::State&>(*state), [&](const char*, auto& field) {
      if constexpr (std::is_same_v<std::decay_t<decltype(field)>, at::Tensor>) {
        if (field.defined() && field.numel() > 0 && field.is_cpu() && !in_file(field))
          tensors.push_back(field);
      }
    });
  }
}

}  // namespace

OffloadFiles::OffloadFiles(std::filesystem::path directory, int rank)
    : directory_(std::move(directory)), rank_(rank) {
  std::error_code error;
  std::filesystem::create_directories(directory_, error);
  const bool usable =
      std::filesystem::is_directory(directory_) && ::access(directory_.c_str(), W_OK | X_OK) == 0;
  if (!usable) {
    throw UsageError(str("offload: ", directory_.string(), " is no directory in which files can be written",
                         error ? str(" (", error.message(), ")") : ""));
  }
}

std::filesystem::path OffloadFiles::next_file() {
  return directory_ / str("rondo-offload-", ::getpid(), "-rank", rank_, "-", files_++);
}

at::Tensor OffloadFiles::zeros(std::int64_t elements, const at::TensorOptions& options,
                               const std::string& what) {
  const std::size_t bytes = static_cast<std::size_t>(elements) * options.dtype().itemsize();
  const auto file = std::make_shared<FileMemory>(next_file(), Bytes{bytes}, what);
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, part_of_file(file, 0), /*allocator=*/nullptr,
                       /*resizable=*/false);
  return at::empty({0}, options).set_(storage, 0, {elements});
}

void OffloadFiles::take_over(torch::optim::Optimizer& optimizer) {
  std::vector<at::Tensor> tensors;
  with_optimizer_kind(optimizer, [&](auto kind) { collect<decltype(kind)>(optimizer, tensors); });
  if (!tensors.empty()) move(tensors, "the optimizer's state");
}

void OffloadFiles::move(const std::vector<at::Tensor>& tensors, const std::string& what) {
  std::size_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += aligned(tensor.storage().nbytes());
  const auto file = std::make_shared<FileMemory>(next_file(), Bytes{bytes}, what);
  std::size_t offset = 0;
  for (const at::Tensor& tensor : tensors) {
    c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
    c10::DataPtr place = part_of_file(file, offset);
    std::memcpy(place.get(), storage.data(), storage.nbytes());
    offset += aligned(storage.nbytes());
    storage.set_data_ptr_noswap(std::move(place));
  }
}

}  // namespace rondo
