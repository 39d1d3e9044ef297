#pragma once

#include <cstddef>
#include <filesystem>

// The disk without a file format and without the page cache (O_DIRECT).
namespace rondo::bench {

// Seconds to write a new file of that size, rounded up to whole blocks of 4 MiB, and to sync it. Throws Error
// where the file system has no direct access.
double write_directly(const std::filesystem::path& path, std::size_t bytes);

// Seconds to read it again.
double read_directly(const std::filesystem::path& path);

// Makes the next read of the folder's files come from the disk.
void drop_from_cache(const std::filesystem::path& directory);

}  // namespace rondo::bench
