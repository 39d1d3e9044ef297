#include "rondo/checkpoint/checkpoint.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "rondo/base/file_access.h"
#include "rondo/format/checkpoint_files.h"
#include "tests/temporary_directory.h"

namespace rondo::incremental_test {
namespace {

namespace fs = std::filesystem;

struct Subject {
  at::Tensor frozen = torch::randn({128, 256});
  at::Tensor trained = torch::randn({256, 128});
  at::Tensor bias = torch::randn({128});

  TrainingState state() const {
    return {.model = {{"frozen", frozen}, {"trained", trained}, {"bias", bias}, {"tied", trained}},
            .optimizers = {}};
  }
};

// Returns the file of a checkpoint that contains the tensor.
fs::path file_of(const fs::path& checkpoint, const std::string& tensor) {
  for (const FileRecord& file : read_manifest(checkpoint).files) {
    for (const TensorRecord& t : file.tensors) {
      if (t.name == tensor) return checkpoint / file.name;
    }
  }
  return {};
}

bool is_same_file(const fs::path& a, const fs::path& b) {
  struct stat left {};
  struct stat right {};
  return ::stat(a.c_str(), &left) == 0 && ::stat(b.c_str(), &right) == 0 && left.st_ino == right.st_ino;
}

void expect_loads(const fs::path& checkpoint, const Subject& saved) {
  EXPECT_TRUE(verify_checkpoint(checkpoint).empty());
  const Subject fresh;
  TrainingState state = fresh.state();
  load_checkpoint(checkpoint, state);
  EXPECT_TRUE(at::equal(fresh.frozen, saved.frozen));
  EXPECT_TRUE(at::equal(fresh.trained, saved.trained));
  EXPECT_TRUE(at::equal(fresh.bias, saved.bias));
}

TEST(Incremental, UnchangedFilesAreLinkedAndOutliveOlderCheckpoint) {
  const TemporaryDirectory directory;
  const Subject subject;
  const fs::path first = save_checkpoint(directory.path(), 1, subject.state(), 3, /*incremental=*/true);
  subject.trained.add_(1);
  const fs::path second = save_checkpoint(directory.path(), 2, subject.state(), 3, true);
  EXPECT_TRUE(is_same_file(file_of(first, "frozen"), file_of(second, "frozen")));
  EXPECT_FALSE(is_same_file(file_of(first, "trained"), file_of(second, "trained")));
  EXPECT_FALSE(is_same_file(file_of(first, "bias"), file_of(second, "bias"))) << "small ones are written";
  expect_loads(second, subject);
  subject.bias.add_(1);
  const fs::path third = save_checkpoint(directory.path(), 3, subject.state(), /*keep=*/1, true);
  EXPECT_FALSE(fs::exists(first) || fs::exists(second));
  expect_loads(third, subject);
  // Saving the same step again links the files of the checkpoint that it replaces.
  expect_loads(save_checkpoint(directory.path(), 3, subject.state(), 1, true), subject);
}

TEST(Incremental, NothingIsLinkedToADamagedFile) {
  const TemporaryDirectory directory;
  const Subject subject;
  const fs::path first = save_checkpoint(directory.path(), 1, subject.state(), 3, true);
  const fs::path file = file_of(first, "frozen");
  std::string bytes = read_regular_file(file);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write_own_file(file, bytes);
  const fs::path second = save_checkpoint(directory.path(), 2, subject.state(), 3, true);
  EXPECT_FALSE(is_same_file(file, file_of(second, "frozen")));
  EXPECT_TRUE(is_same_file(file_of(first, "trained"), file_of(second, "trained")));
  expect_loads(second, subject);
  // Also not for a damaged manifest, and not for a symbolic link.
  write_own_file(second / "manifest.json", "{}");
  const fs::path third = save_checkpoint(directory.path(), 3, subject.state(), 3, true);
  EXPECT_FALSE(is_same_file(file_of(first, "trained"), file_of(third, "trained")));
  const fs::path linked = file_of(third, "trained");
  fs::rename(linked, directory / "elsewhere");
  fs::create_symlink(directory / "elsewhere", linked);
  const fs::path fourth = save_checkpoint(directory.path(), 4, subject.state(), 3, true);
  EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(file_of(fourth, "trained"))));
  expect_loads(fourth, subject);
}

TEST(Incremental, EqualBytesOfAnotherShapeAreNotLinked) {
  const TemporaryDirectory directory;
  const auto save = [&](std::int64_t step, const at::Tensor& tensor) {
    const TrainingState state{.model = {{"t", tensor}}, .optimizers = {}};
    return file_of(save_checkpoint(directory.path(), step, state, 9, true), "t");
  };
  const fs::path first = save(1, torch::zeros({128, 256}));
  EXPECT_FALSE(is_same_file(first, save(2, torch::zeros({256, 128}))));
  EXPECT_FALSE(is_same_file(first, save(3, torch::zeros({256, 128}, at::kInt))));
  // A checkpoint that is not incremental has nothing to link and does no harm.
  const TrainingState whole{.model = {{"t", torch::zeros({128, 256})}}, .optimizers = {}};
  save_checkpoint(directory.path(), 4, whole, 9);
  EXPECT_TRUE(verify_checkpoint(save(5, torch::zeros({128, 256})).parent_path()).empty());
}

}  // namespace
}  // namespace rondo::incremental_test
