#include "rondo/env/source.h"

#include <array>

namespace rondo::env {

std::span<const Source> sources() {
  static const std::array table = {
      pet_source,   torchrun_source,   open_mpi_source,  pmi_source,
      slurm_source, kubernetes_source, tpu_slice_source, tf_config_source,
  };
  return table;
}

}  // namespace rondo::env
