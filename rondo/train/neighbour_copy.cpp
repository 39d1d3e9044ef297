#include "rondo/train/neighbour_copy.h"

#include <torch/types.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <span>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/format/file.h"

namespace rondo {
namespace fs = std::filesystem;
namespace {

constexpr std::int64_t kPiece = std::int64_t{8} << 20;

at::TensorOptions bytes_on(const Group& group) {
  return at::TensorOptions(at::kByte).device(group.traits().control_device());
}

std::int64_t total_bytes(const std::vector<FileRecord>& files) {
  std::int64_t sum = 0;
  for (const FileRecord& file : files) sum += static_cast<std::int64_t>(file.bytes);
  return sum;
}

// Returns the size of the piece that starts at `begin` in a stream of `total` bytes.
std::int64_t piece_of(std::int64_t total, std::int64_t begin) {
  return std::clamp<std::int64_t>(total - begin, 0, kPiece);
}

// A runner that keeps the first failure and skips later actions, so that other ranks do not wait for a failed
// one.
class Attempts {
 public:
  void operator()(const std::function<void()>& action) {
    if (!failure_.empty()) return;
    try {
      action();
    } catch (const std::exception& error) {
      failure_ = error.what();
    }
  }
  const std::string& failure() const { return failure_; }

 private:
  std::string failure_;
};

// A stream of concatenated files.
class FilesToRead {
 public:
  FilesToRead(const fs::path& directory, const std::vector<FileRecord>& files) {
    for (const FileRecord& file : files) {
      files_.push_back(std::make_unique<MappedFile>(directory / file.name));
      if (files_.back()->bytes().size() != file.bytes)
        throw DataError(str(files_.back()->path().string(), " has ", files_.back()->bytes().size(),
                            " bytes, not the ", file.bytes, " that were written"));
    }
  }
  void read(std::span<std::byte> to) {
    while (!to.empty()) {
      const std::span<const std::byte> left = files_.at(number_)->bytes().subspan(offset_);
      const std::size_t count = std::min(left.size(), to.size());
      std::memcpy(to.data(), left.data(), count);
      to = to.subspan(count);
      offset_ += count;
      if (count == left.size()) {
        ++number_;
        offset_ = 0;
      }
    }
  }

 private:
  std::vector<std::unique_ptr<MappedFile>> files_;
  std::size_t number_ = 0;
  std::size_t offset_ = 0;
};

class FilesToWrite {
 public:
  FilesToWrite(fs::path directory, const std::vector<FileRecord>& files)
      : directory_(std::move(directory)), files_(files) {}
  void write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const FileRecord& record = files_.at(number_);
      if (!file_) {
        file_.emplace(directory_ / record.name, OutputFile::Mode::create);
        file_->reserve(Bytes{record.bytes});
      }
      const std::size_t count = std::min<std::size_t>(record.bytes - file_->written(), bytes.size());
      file_->write(bytes.first(count));
      bytes = bytes.subspan(count);
      if (file_->written() < record.bytes) continue;
      file_->close();
      file_.reset();
      ++number_;
    }
  }

 private:
  fs::path directory_;
  const std::vector<FileRecord>& files_;
  std::size_t number_ = 0;
  std::optional<OutputFile> file_;
};

std::span<std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), static_cast<std::size_t>(tensor.numel())};
}

}  // namespace

std::string copy_to_neighbour(const Group& group, const MemoryCheckpointHosts& hosts,
                              const fs::path& directory, const std::vector<std::vector<FileRecord>>& files) {
  const int own = group.rank();
  Attempts attempt;
  std::vector<std::int64_t> totals;
  std::vector<std::optional<FilesToWrite>> written;  // by rank; set for senders to this rank
  for (int rank = 0; rank < group.size(); ++rank) {
    totals.push_back(total_bytes(files[static_cast<std::size_t>(rank)]));
    written.emplace_back();
    if (hosts.partner(rank) == own) written.back().emplace(directory, files[static_cast<std::size_t>(rank)]);
  }
  std::optional<FilesToRead> read;
  attempt([&] { read.emplace(directory, files[static_cast<std::size_t>(own)]); });
  const std::int64_t longest = *std::max_element(totals.begin(), totals.end());
  const auto ranks = static_cast<std::size_t>(group.size());
  for (std::int64_t begin = 0; begin < longest; begin += kPiece) {
    std::vector<std::int64_t> out_rows(ranks, 0), in_rows(ranks, 0);
    out_rows[static_cast<std::size_t>(hosts.partner(own))] =
        piece_of(totals[static_cast<std::size_t>(own)], begin);
    std::int64_t arriving = 0;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      if (written[rank]) in_rows[rank] = piece_of(totals[rank], begin);
      arriving += in_rows[rank];
    }
    at::Tensor out = at::empty({piece_of(totals[static_cast<std::size_t>(own)], begin)}, at::kByte);
    attempt([&] { read->read(bytes_of(out)); });
    at::Tensor in = at::empty({arriving}, bytes_on(group));
    all_to_all_single(in, out.to(in.device()), in_rows, out_rows, group);
    const at::Tensor here = in.cpu();
    std::int64_t offset = 0;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      attempt([&] {
        if (written[rank]) written[rank]->write(bytes_of(here.narrow(0, offset, in_rows[rank])));
      });
      offset += in_rows[rank];
    }
  }
  return attempt.failure();
}

std::string broadcast_file(const Group& group, int source, const fs::path& file, std::uint64_t bytes,
                           const fs::path& target) {
  Attempts attempt;
  std::optional<MappedFile> read;
  std::optional<OutputFile> written;
  attempt([&] {
    if (group.rank() == source) read.emplace(file);
    if (!target.empty()) written.emplace(target, OutputFile::Mode::create);
  });
  const auto total = static_cast<std::int64_t>(bytes);
  for (std::int64_t begin = 0; begin < total; begin += kPiece) {
    at::Tensor piece = at::zeros({piece_of(total, begin)}, at::kByte);
    attempt([&] {
      if (!read) return;
      const auto part =
          read->bytes().subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(piece.numel()));
      std::memcpy(piece.data_ptr(), part.data(), part.size());
    });
    piece = piece.to(bytes_on(group).device());
    broadcast(piece, group, source);
    attempt([&] {
      if (written) written->write(bytes_of(piece.cpu()));
    });
  }
  attempt([&] {
    if (written) written->close();
  });
  return attempt.failure();
}

}  // namespace rondo
