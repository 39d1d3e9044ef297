#include <interfaces/highs_c_api.h>

#include <algorithm>
#include <cmath>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/plan/solver/linear_model.h"

namespace rondo::plan {
namespace {

// A sparse matrix by columns, in HiGHS's format.
struct Matrix {
  std::vector<HighsInt> starts;
  std::vector<HighsInt> indices;
  std::vector<double> values;
};

Matrix by_columns(const LinearProgram& program) {
  Matrix matrix;
  std::vector<std::vector<Entry>> columns(program.columns.size());
  for (std::size_t r = 0; r < program.rows.size(); ++r) {
    for (const Entry& entry : program.rows[r].entries)
      columns[static_cast<std::size_t>(entry.column)].push_back({static_cast<int>(r), entry.value});
  }
  for (const auto& column : columns) {
    matrix.starts.push_back(static_cast<HighsInt>(matrix.indices.size()));
    for (const Entry& entry : column) {
      matrix.indices.push_back(entry.column);
      matrix.values.push_back(entry.value);
    }
  }
  return matrix;
}

struct Free {
  void operator()(void* highs) const { Highs_destroy(highs); }
};
using Handle = std::unique_ptr<void, Free>;

// HiGHS gets the program without the objective's constant, so that all its objectives agree; the constant is
// added to results.
struct Call {
  SolveOptions options;
  double constant = 0;
};

void on_callback(int type, const char*, const HighsCallbackDataOut* out, HighsCallbackDataIn* in,
                 void* user) {
  const auto& [options, constant] = *static_cast<const Call*>(user);
  if (type == kHighsCallbackMipImprovingSolution && options.on_solution && out->mip_solution != nullptr) {
    options.on_solution({out->mip_solution, out->mip_solution + out->mip_solution_size});
  } else if (type == kHighsCallbackMipInterrupt || type == kHighsCallbackSimplexInterrupt) {
    const bool is_enough = type == kHighsCallbackMipInterrupt && options.is_enough &&
                           std::isfinite(out->mip_dual_bound) &&
                           options.is_enough(out->mip_dual_bound + constant);
    const bool stop = is_enough || options.wait.deadline.passed() ||
                      (options.wait.cancel != nullptr && options.wait.cancel->cancelled());
    in->user_interrupt = stop ? 1 : 0;
  }
}

class Highs final : public LinearModel {
 public:
  std::string name() const override { return str("HiGHS ", Highs_version()); }

  SolveResult solve(const LinearProgram& program, const SolveOptions& options) override {
    const Handle highs(Highs_create());
    const bool is_mip = !options.relax && std::any_of(program.columns.begin(), program.columns.end(),
                                                      [](const Column& c) { return c.is_integer; });
    configure(highs.get(), options, program.constant);
    pass(highs.get(), program, is_mip);
    if (is_mip && !options.start.empty())
      Highs_setSolution(highs.get(), options.start.data(), nullptr, nullptr, nullptr);
    Call call{options, program.constant};
    Highs_setCallback(highs.get(), on_callback, &call);
    Highs_startCallback(highs.get(), kHighsCallbackSimplexInterrupt);
    if (is_mip) {
      Highs_startCallback(highs.get(), kHighsCallbackMipInterrupt);
      Highs_startCallback(highs.get(), kHighsCallbackMipImprovingSolution);
    }
    if (Highs_run(highs.get()) == kHighsStatusError) return {};
    return collect(highs.get(), program, is_mip);
  }

 private:
  static void configure(void* highs, const SolveOptions& options, double constant) {
    Highs_setBoolOptionValue(highs, "output_flag", 0);
    Highs_setDoubleOptionValue(highs, "mip_rel_gap", options.relative_gap);
    if (options.cutoff < kUnbounded)
      Highs_setDoubleOptionValue(highs, "objective_bound", options.cutoff - constant);
    if (!options.wait.deadline.is_never())
      Highs_setDoubleOptionValue(highs, "time_limit",
                                 std::max(0.0, seconds(options.wait.deadline.remaining())));
  }

  static void pass(void* highs, const LinearProgram& program, bool is_mip) {
    const Matrix matrix = by_columns(program);
    std::vector<double> cost;
    std::vector<double> lower;
    std::vector<double> upper;
    std::vector<HighsInt> integrality;
    for (const Column& c : program.columns) {
      cost.push_back(c.cost);
      lower.push_back(c.lower);
      upper.push_back(c.upper);
      integrality.push_back(c.is_integer ? kHighsVarTypeInteger : kHighsVarTypeContinuous);
    }
    std::vector<double> row_lower;
    std::vector<double> row_upper;
    for (const Row& r : program.rows) {
      row_lower.push_back(r.lower);
      row_upper.push_back(r.upper);
    }
    const auto columns = static_cast<HighsInt>(cost.size());
    const auto rows = static_cast<HighsInt>(row_lower.size());
    const auto nonzeros = static_cast<HighsInt>(matrix.values.size());
    const HighsInt status =
        is_mip ? Highs_passMip(highs, columns, rows, nonzeros, kHighsMatrixFormatColwise,
                               kHighsObjSenseMinimize, /*offset=*/0, cost.data(), lower.data(), upper.data(),
                               row_lower.data(), row_upper.data(), matrix.starts.data(),
                               matrix.indices.data(), matrix.values.data(), integrality.data())
               : Highs_passLp(highs, columns, rows, nonzeros, kHighsMatrixFormatColwise,
                              kHighsObjSenseMinimize, /*offset=*/0, cost.data(), lower.data(), upper.data(),
                              row_lower.data(), row_upper.data(), matrix.starts.data(), matrix.indices.data(),
                              matrix.values.data());
    if (status == kHighsStatusError) throw Error(str("HiGHS refused the program '", program.name, "'"));
  }

  static SolveResult collect(void* highs, const LinearProgram& program, bool is_mip) {
    SolveResult result;
    const HighsInt status = Highs_getModelStatus(highs);
    if (status == kHighsModelStatusInfeasible || status == kHighsModelStatusUnboundedOrInfeasible) {
      result.status = SolveStatus::infeasible;
      return result;
    }
    HighsInt has_solution = 0;
    Highs_getIntInfoValue(highs, "primal_solution_status", &has_solution);
    if (has_solution == kHighsSolutionStatusFeasible) {
      result.values.resize(program.columns.size());
      result.row_duals.resize(program.rows.size());
      std::vector<double> column_duals(program.columns.size());
      std::vector<double> row_values(program.rows.size());
      Highs_getSolution(highs, result.values.data(), column_duals.data(), row_values.data(),
                        result.row_duals.data());
      Highs_getDoubleInfoValue(highs, "objective_function_value", &result.objective);
      result.objective += program.constant;
      result.status = status == kHighsModelStatusOptimal ? SolveStatus::optimal : SolveStatus::feasible;
    }
    if (is_mip) {
      double bound = 0;
      Highs_getDoubleInfoValue(highs, "mip_dual_bound", &bound);
      if (std::isfinite(bound)) result.bound = bound + program.constant;
    } else if (status == kHighsModelStatusOptimal) {
      result.bound = result.objective;
    }
    return result;
  }
};

}  // namespace

std::unique_ptr<LinearModel> make_highs() { return std::make_unique<Highs>(); }

}  // namespace rondo::plan
