#include "rondo/data/images.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <numeric>
#include <optional>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/data/subset.h"

namespace rondo {

void ImageRecords::append(ImageRecords other) {
  for (const std::int64_t start : other.starts)
    starts.push_back(static_cast<std::int64_t>(labels.size()) + start);
  files.insert(files.end(), std::make_move_iterator(other.files.begin()),
               std::make_move_iterator(other.files.end()));
  pixels.insert(pixels.end(), other.pixels.begin(), other.pixels.end());
  labels.insert(labels.end(), other.labels.begin(), other.labels.end());
}

ImageDataset::ImageDataset(ImageRecords records, DatasetInfo info)
    : records_(std::move(records)), info_(std::move(info)) {
  values_ = static_cast<std::size_t>(std::accumulate(info_.input_shape.begin(), info_.input_shape.end(),
                                                     std::int64_t{1}, std::multiplies<>()));
}

std::vector<std::int64_t> ImageDataset::file_starts() const {
  std::vector<std::int64_t> starts = records_.starts;
  starts.push_back(size());
  return without_empty_files(std::move(starts));
}

Batch ImageDataset::get(std::span<const std::int64_t> indices) const {
  check_indices(indices, size());
  const auto samples = static_cast<std::int64_t>(indices.size());
  std::vector<std::int64_t> shape = info_.input_shape;
  shape.insert(shape.begin(), samples);
  Batch batch{.inputs = {at::empty(shape, at::kFloat)},
              .targets = {at::empty({samples}, at::kLong)},
              .samples = samples};
  auto* input = batch.inputs[0].mutable_data_ptr<float>();
  auto* target = batch.targets[0].mutable_data_ptr<std::int64_t>();
  for (const std::int64_t index : indices) {
    const std::uint8_t* pixels = records_.pixels[static_cast<std::size_t>(index)];
    for (std::size_t i = 0; i < values_; ++i) *input++ = static_cast<float>(pixels[i]) / 127.5F - 1.0F;
    *target++ = records_.labels[static_cast<std::size_t>(index)];
  }
  return batch;
}

OpenedData open_images(std::shared_ptr<const Dataset> train, std::shared_ptr<const Dataset> test,
                       const DataOptions& options) {
  const std::string kind = train->info().kind;
  check_validation_fraction(options.validation_fraction);
  if (test || options.validation_fraction == 0.0) return {kind, std::move(train), std::move(test)};
  SplitIndices split = split_indices(train->size(), options.validation_fraction, options.split_seed);
  return {kind, std::make_shared<Subset>(train, std::move(split.train)),
          std::make_shared<Subset>(train, std::move(split.validation))};
}

namespace {

namespace fs = std::filesystem;

struct Pair {
  std::string images;
  std::string labels;
};

// Returns the pair named `part` ("train", "t10k") in `directory` if its images exist.
std::optional<Pair> find_pair(const fs::path& directory, const std::string& part) {
  for (const char* separator : {"-", "."}) {
    const fs::path images = directory / (part + "-images" + separator + "idx3-ubyte");
    if (fs::exists(images)) {
      return Pair{images.string(), (directory / (part + "-labels" + separator + "idx1-ubyte")).string()};
    }
    if (fs::path packed = images.string() + ".gz"; fs::exists(packed)) {
      throw DataError(str("'", packed.string(),
                          "' is compressed, expected plain IDX files; unpack them: gunzip ",
                          (directory / "*.gz").string()));
    }
  }
  return std::nullopt;
}

std::string labels_beside(const std::string& images) {
  const fs::path path(images);
  std::string name = path.filename().string();
  const auto replace = [&name](const std::string& from, const std::string& to) {
    const std::size_t at = name.find(from);
    if (at != std::string::npos) name.replace(at, from.size(), to);
    return at != std::string::npos;
  };
  if (!replace("images", "labels")) {
    throw DataError(str("'", images,
                        "': cannot tell which file has its labels, expected 'images' in the name (and a "
                        "file with 'labels' and idx1 in its place)"));
  }
  replace("idx3", "idx1");
  return (path.parent_path() / name).string();
}

struct Part {
  ImageRecords records;
  std::int64_t height = 0;
  std::int64_t width = 0;
};

Part read_pair(const Pair& pair) {
  const auto images = std::make_shared<const MappedInput>(pair.images);
  const auto labels = std::make_shared<const MappedInput>(pair.labels);
  const IdxView image_view = parse_idx(images->bytes(), pair.images, 3);
  const IdxView label_view = parse_idx(labels->bytes(), pair.labels, 1);
  if (image_view.shape[0] != label_view.shape[0]) {
    throw DataError(str("'", pair.labels, "', offset 4: ", label_view.shape[0], " labels, expected ",
                        image_view.shape[0], ", one for each image of '", pair.images, "'"));
  }
  Part part{.records = {}, .height = image_view.shape[1], .width = image_view.shape[2]};
  part.records.files = {images};
  part.records.labels.assign(label_view.values.begin(), label_view.values.end());
  const auto stride = static_cast<std::size_t>(part.height * part.width);
  for (std::size_t i = 0; i < part.records.labels.size(); ++i) {
    part.records.pixels.push_back(image_view.values.data() + i * stride);
  }
  return part;
}

std::int64_t largest_label(const Part& part) {
  return *std::max_element(part.records.labels.begin(), part.records.labels.end());
}

OpenedData open_idx(const std::string& path, const DataOptions& options) {
  Pair train_files;
  std::optional<Pair> test_files;
  if (fs::is_directory(path)) {
    const std::optional<Pair> found = find_pair(path, "train");
    if (!found) {
      throw DataError(
          str("'", path, "' has no train-images-idx3-ubyte, expected MNIST's file names in a directory"));
    }
    train_files = *found;
    test_files = find_pair(path, "t10k");
  } else {
    MappedInput probe(path);  // reports a missing file before its labels are searched
    train_files = {path, labels_beside(path)};
  }
  Part train = read_pair(train_files);
  std::optional<Part> test;
  if (test_files) test = read_pair(*test_files);
  if (test && (test->height != train.height || test->width != train.width)) {
    throw DataError(str("'", test_files->images, "', offset 8: images of ", test->height, "x", test->width,
                        ", expected ", train.height, "x", train.width, " as in '", train_files.images, "'"));
  }
  const std::int64_t classes = std::max(largest_label(train), test ? largest_label(*test) : 0) + 1;
  const DatasetInfo info{
      .kind = "idx", .source = path, .input_shape = {1, train.height, train.width}, .classes = classes};
  std::shared_ptr<const Dataset> test_set;
  if (test) test_set = std::make_shared<ImageDataset>(std::move(test->records), info);
  return open_images(std::make_shared<ImageDataset>(std::move(train.records), info), std::move(test_set),
                     options);
}

bool detect_idx(const std::string& path) {
  if (fs::is_directory(path)) return find_pair(path, "train").has_value();
  const MappedInput file(path);
  const std::span<const std::uint8_t> bytes = file.bytes();
  return bytes.size() >= 4 && bytes[0] == 0 && bytes[1] == 0 && bytes[2] >= 0x08 && bytes[2] <= 0x0e &&
         bytes[3] >= 1 && bytes[3] <= 4;
}

}  // namespace

IdxView parse_idx(std::span<const std::uint8_t> file, const std::string& path, int dimensions) {
  const auto fail = [&path](std::size_t offset, const auto&... parts) {
    throw DataError(str("'", path, "', offset ", offset, ": ", parts...));
  };
  const std::size_t header = 4 + 4 * static_cast<std::size_t>(dimensions);
  if (file.size() >= 2 && file[0] == 0x1f && file[1] == 0x8b) {
    fail(0, "the file is compressed, expected plain IDX; unpack it: gunzip ", path);
  }
  if (file.size() < header) {
    fail(file.size(), "the file ends here, expected an IDX header of ", header, " bytes");
  }
  if (file[0] != 0 || file[1] != 0)
    fail(0, "bytes ", int{file[0]}, " ", int{file[1]}, ", expected 0 0 (IDX)");
  if (file[2] != 0x08) fail(2, "value type ", int{file[2]}, ", expected 8 (bytes)");
  if (file[3] != dimensions) fail(3, int{file[3]}, " dimensions, expected ", dimensions);
  IdxView view;
  std::uint64_t values = 1;
  for (int i = 0; i < dimensions; ++i) {
    const std::size_t at = 4 + 4 * static_cast<std::size_t>(i);
    const std::uint64_t size = std::uint64_t{file[at]} << 24 | std::uint64_t{file[at + 1]} << 16 |
                               std::uint64_t{file[at + 2]} << 8 | file[at + 3];
    if (size == 0) fail(at, "a dimension of 0, expected at least 1");
    // A division, because the product could overflow.
    if (size > file.size() / values) {
      fail(at, "a dimension of ", size, " needs more values than the file's ", file.size(), " bytes have");
    }
    values *= size;
    view.shape.push_back(static_cast<std::int64_t>(size));
  }
  if (file.size() < header + values) {
    fail(file.size(), "the file ends here, expected ", header + values, " bytes");
  }
  if (file.size() > header + values) {
    fail(header + values, file.size() - header - values, " more bytes, expected the end of the file");
  }
  view.values = file.subspan(header);
  return view;
}

bool IdxKind::detect(const std::string& /*name*/, const std::string& path) { return detect_idx(path); }

OpenedData IdxKind::open(const std::string& /*name*/, const std::string& path, const DataOptions& options,
                         const Options& /*own*/) {
  return open_idx(path, options);
}

namespace {

const CifarFormat& format_of(const std::string& kind) { return kind == kCifar10.kind ? kCifar10 : kCifar100; }

struct CifarFiles {
  std::vector<std::string> train;
  std::string test;  // empty: none
};

// Finds the files in one directory, not recursively.
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
