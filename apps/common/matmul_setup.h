#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace rondo {

// For programs that start ranks: hands `setting` ("auto" or "libtorch", as --matmul has it) to them in
// RONDO_MATMUL, which the user may have set already and which then stays for "auto". With "auto", where MKL
// may have faster kernels that were never measured on this machine with the libtorch that is used, runs
// rondo-matmul first: some seconds, once, after a line on standard error that says so. What is measured is
// kept in the user's cache, else in `run_directory` (empty: there is none), and ranks are told where; where
// neither can be written nothing is measured. Waits, after a line that says so, while another program
// measures for the same place, two minutes at the longest. Never fails: without a measurement the default
// kernels are used. Before any rank is started.
void prepare_matmul(const std::string& setting, const std::filesystem::path& run_directory = {});

// Whether MKL, where it is, may have other kernels to choose: the processor is an x86 of another maker than
// Intel.
bool matmul_has_a_choice();

// The first place for measurements that can be written, which this process and those it starts then use:
// RONDO_MATMUL_MEASUREMENTS or the user's cache, `run_directory`. Empty when there is none.
std::optional<std::string> find_place_for_matmul(const std::filesystem::path& run_directory = {});

// Says so on standard error, and runs rondo-matmul, which measures and keeps the result. Throws Error saying
// why it could not.
void measure_matmul();

}  // namespace rondo
