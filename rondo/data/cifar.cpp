#include "rondo/data/cifar.h"

#include <algorithm>
#include <filesystem>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

const CifarFormat& format_of(const std::string& kind) { return kind == kCifar10.kind ? kCifar10 : kCifar100; }

struct CifarFiles {
  std::vector<std::string> train;
  std::string test;  // empty: none
};

// Of one directory, without looking further.
CifarFiles files_in(const fs::path& directory, const CifarFormat& format) {
  CifarFiles files;
  const auto add = [&](const std::string& name) {
    if (fs::exists(directory / name)) files.train.push_back((directory / name).string());
  };
  const bool batches = format.kind == kCifar10.kind;
  if (batches) {
    for (int i = 1; i <= 5; ++i) add(str("data_batch_", i, ".bin"));
  } else {
    add("train.bin");
  }
  const fs::path test = directory / (batches ? "test_batch.bin" : "test.bin");
  if (fs::exists(test)) files.test = test.string();
  return files;
}

CifarFiles find_files(const std::string& path, const CifarFormat& format) {
  if (!fs::is_directory(path)) return {.train = {path}, .test = ""};
  CifarFiles files = files_in(path, format);
  const fs::path unpacked =
      fs::path(path) / (format.kind == kCifar10.kind ? "cifar-10-batches-bin" : "cifar-100-binary");
  if (files.train.empty() && fs::is_directory(unpacked)) files = files_in(unpacked, format);
  return files;
}

ImageRecords read_all(const std::vector<std::string>& paths, const CifarFormat& format) {
  ImageRecords records;
  for (const std::string& path : paths)
    records.append(parse_cifar(std::make_shared<MappedInput>(path), format));
  return records;
}

OpenedData open_cifar(const std::string& path, const DataOptions& options, const CifarFormat& format) {
  const CifarFiles files = find_files(path, format);
  if (files.train.empty()) {
    throw DataError(str("'", path, "' has no ",
                        format.kind == kCifar10.kind ? "data_batch_1.bin" : "train.bin",
                        ", expected the file names of ", format.kind, "'s binary version in a directory"));
  }
  const DatasetInfo info{
      .kind = format.kind, .source = path, .input_shape = {3, 32, 32}, .classes = format.classes};
  std::shared_ptr<const Dataset> test;
  if (!files.test.empty()) test = std::make_shared<ImageDataset>(read_all({files.test}, format), info);
  return open_images(std::make_shared<ImageDataset>(read_all(files.train, format), info), std::move(test),
                     options);
}

bool detect_cifar(const std::string& path, const CifarFormat& format) {
  if (fs::is_directory(path)) return !find_files(path, format).train.empty();
  const MappedInput file(path);
  const std::span<const std::uint8_t> bytes = file.bytes();
  if (!path.ends_with(".bin") || bytes.size() % format.record_bytes() != 0 || bytes.empty()) return false;
  for (std::size_t at = 0; at < bytes.size(); at += format.record_bytes()) {
    if (bytes[at + format.label_bytes - 1] >= format.classes) return false;
  }
  return true;
}

}  // namespace

ImageRecords parse_cifar(std::shared_ptr<const MappedInput> file, const CifarFormat& format) {
  const std::span<const std::uint8_t> bytes = file->bytes();
  const std::size_t record = format.record_bytes();
  if (bytes.empty()) {
    throw DataError(
        str("'", file->path(), "' is empty, expected records of ", record, " bytes (", format.kind, ")"));
  }
  if (const std::size_t rest = bytes.size() % record; rest != 0) {
    throw DataError(str("'", file->path(), "', offset ", bytes.size() - rest, ": the file ends after ", rest,
                        " bytes, expected a record of ", record, " bytes (", format.kind, ")"));
  }
  ImageRecords records;
  for (std::size_t at = 0; at < bytes.size(); at += record) {
    const std::uint8_t label = bytes[at + format.label_bytes - 1];
    if (label >= format.classes) {
      throw DataError(str("'", file->path(), "', offset ", at + format.label_bytes - 1, ": label ",
                          int{label}, ", expected 0 to ", format.classes - 1, " (", format.kind, ")"));
    }
    records.labels.push_back(label);
    records.pixels.push_back(bytes.data() + at + format.label_bytes);
  }
  records.files.push_back(std::move(file));
  return records;
}

bool CifarKind::detect(const std::string& name, const std::string& path) {
  return detect_cifar(path, format_of(name));
}

OpenedData CifarKind::open(const std::string& name, const std::string& path, const DataOptions& options,
                           const Options& /*own*/) {
  return open_cifar(path, options, format_of(name));
}

}  // namespace rondo
