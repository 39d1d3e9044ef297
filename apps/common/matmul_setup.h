#pragma once

#include <string>

namespace rondo {

// For programs that start ranks: hands `setting` ("auto" or "default", as --matmul has it) to them in
// RONDO_MATMUL, which the user may have set already and which then stays for "auto". With "auto", where MKL
// may have faster kernels that were never measured on this machine with the libtorch rondo was built with,
// runs rondo-matmul first: about four seconds, once. Never fails: without a measurement the default kernels
// are used, with a warning. Before any rank is started.
void prepare_matmul(const std::string& setting);

// Whether MKL, where it is, may have other kernels to choose: the processor is an x86 of another maker than
// Intel.
bool matmul_has_a_choice();

// Runs rondo-matmul, which measures and keeps the result. Throws Error saying why it could not.
void measure_matmul();

}  // namespace rondo
