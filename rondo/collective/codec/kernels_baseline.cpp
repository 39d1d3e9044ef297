#include "rondo/collective/codec/kernels_body.h"

namespace rondo::collective::kernels {

const CodecKernels baseline_kernels = make_kernels("baseline");

}  // namespace rondo::collective::kernels
