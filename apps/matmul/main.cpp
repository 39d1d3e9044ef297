// `rondo-matmul`: measures which of MKL's float32 kernels are faster here, and keeps the result. Not a
// command for people: other programs of rondo run it when a machine has not been measured.
#include <torch/types.h>

#include <filesystem>
#include <iostream>

#include "apps/common/child_output.h"
#include "apps/common/command_line.h"
#include "apps/matmul/figures.h"
#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/process.h"
#include "rondo/base/text.h"
#include "rondo/kernels/matmul_choice.h"

namespace {

using rondo::Error;
using rondo::str;

constexpr int kLeastTurns = 2, kMostTurns = 6;
constexpr double kSettled = 1.03;  // a turn that brings no more than this has brought nothing

// What the processes of one choice measured. In turns, so that a slow moment of the machine hits both.
struct Turns {
  std::vector<nlohmann::json> standard;
  std::vector<nlohmann::json> fast;
};

nlohmann::json measure_in_a_process(const std::string& choice) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const rondo::ChildOutput output =
      rondo::run_child({self, "--one"}, {{rondo::kMatmulVariable, choice}, {"OMP_NUM_THREADS", "1"}});
  if (output.exit_code != 0) throw Error(str(self, " --one ended with exit code ", output.exit_code));
  return rondo::parse_json_strict(output.text, self);
}

// In turns until the best times settle: what is kept here decides for good, and the machine may be busy now.
rondo::MatmulMeasurement measure() {
  Turns turns;
  rondo::MatmulMeasurement measured{rondo::machine_name(), {}, {}, {}};
  for (int turn = 1; turn <= kMostTurns; ++turn) {
    for (const bool fast : {false, true}) {
      nlohmann::json process = measure_in_a_process(fast ? "fast" : "libtorch");
      measured.library = process.at("library");
      // Where there is nothing to choose, both are the default.
      if (fast && !process.at("fast").get<bool>()) process = turns.standard.back();
      (fast ? turns.fast : turns.standard).push_back(std::move(process));
    }
    const rondo::MatmulFigures before[] = {measured.standard, measured.fast};
    measured.standard = rondo::combine(turns.standard);
    measured.fast = rondo::combine(turns.fast);
    if (turn >= kLeastTurns && measured.standard.gflops <= kSettled * before[0].gflops &&
        measured.fast.gflops <= kSettled * before[1].gflops)
      break;
  }
  return measured;
}

int run(bool one) {
  if (one) {
    nlohmann::json answer = rondo::measure_products();
    answer["fast"] = rondo::matmul_choice().fast;
    answer["library"] = rondo::library_identity(rondo::loaded_libtorch());
    std::cout << answer.dump() << std::endl;
    return 0;
  }
  const rondo::MatmulMeasurement measured = measure();
  rondo::keep_matmul_measurement(rondo::matmul_measurements_path(), measured);
  std::cout << "default " << measured.standard.gflops << " GFLOP/s, error " << measured.standard.error
            << "; fast " << measured.fast.gflops << " GFLOP/s, error " << measured.fast.error << std::endl;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Measures the kernels for float32 matrix products and keeps the result.", "rondo-matmul");
  bool one = false;
  app.add_flag("--one", one, "Measure the choice of this process, RONDO_MATMUL's, and print it as JSON");
  return rondo::run_command_line(app, argc, argv, [&] { return run(one); });
}
