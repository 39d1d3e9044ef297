#pragma once

#include <exception>
#include <string>
#include <string_view>

namespace rondo::launch {

// The file in which a worker says why it failed: PyTorch's TORCHELASTIC_ERROR_FILE, JSON
// {"message": {"message": "...", "extraInfo": {"timestamp": "..."}}}; older programs write {"message":
// "..."}.

// Writes `message`, with what a terminal would obey escaped, to the file that the launcher named in the
// environment; does nothing without a launcher.
// For the outermost catch of a program. Never throws.
void record_failure(std::string_view message) noexcept;
// The same of an exception. Of a PeerLostError the file says so.
void record_failure(const std::exception& error) noexcept;

// The message in `path`, or an empty text when there is no such file or it is malformed.
std::string read_error_file(const std::string& path);

// Whether `path` tells of the end of another process: then that came first, however early this was written.
bool tells_of_lost_peer(const std::string& path);

}  // namespace rondo::launch
