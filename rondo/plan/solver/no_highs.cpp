#include "rondo/plan/solver/linear_model.h"

namespace rondo::plan {

std::unique_ptr<LinearModel> make_highs() { return nullptr; }

}  // namespace rondo::plan
