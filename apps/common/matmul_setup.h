#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace rondo {

// Selects the matrix kernels for programs that start ranks; call before any rank is started. Passes `setting`
// ("auto" or "libtorch", from --matmul) to ranks in RONDO_MATMUL; a value that the user has set takes
// precedence over "auto". With "auto", if MKL may have faster kernels that were never measured on this
// machine with this libtorch, runs rondo-matmul first. That takes some seconds, once, after a line on
// standard error. The result is stored in the user's cache, else in `run_directory` (empty: none), and ranks
// get its path. If neither is writable, nothing is measured. Waits at most two minutes, after a line on
// standard error, while another program measures for the same place. Never fails: without a measurement the
// default kernels are used.
void prepare_matmul(const std::string& setting, const std::filesystem::path& run_directory = {});

// Returns true if MKL may have other kernels to choose, because the processor is an x86 not made by Intel.
bool matmul_has_a_choice();

// Returns the first writable place for measurements (RONDO_MATMUL_MEASUREMENTS or the user's cache, then
// `run_directory`), and makes this process and its children use it. Empty if there is none.
std::optional<std::string> find_place_for_matmul(const std::filesystem::path& run_directory = {});

// Prints a line on standard error, and runs rondo-matmul, which measures and stores the result. Throws Error
// with the reason if that fails.
void measure_matmul();

}  // namespace rondo
