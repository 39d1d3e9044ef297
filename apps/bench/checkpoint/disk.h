#pragma once

#include <cstddef>
#include <filesystem>

// The disk without a file format and without the page cache (O_DIRECT), and what else a machine does to both.
namespace rondo::bench {

// Seconds to write a new file of that size, rounded up to whole blocks of 4 MiB, and to sync it. Throws Error
// where the file system has no direct access.
double write_directly(const std::filesystem::path& path, std::size_t bytes);

// Seconds to read it again.
double read_directly(const std::filesystem::path& path);

// Makes the next read of the folder's files come from the disk.
void drop_from_cache(const std::filesystem::path& directory);

// Writes a file of so many bytes into the page cache and deletes it, so that what is written next finds
// memory that the machine has. The host of a virtual machine takes free memory back within a second, and
// gives it again page by page: a save of 306 MB then took 0.3 s or more instead of 0.09.
void touch_page_cache(const std::filesystem::path& path, std::size_t bytes);

}  // namespace rondo::bench
