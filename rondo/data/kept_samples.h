#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rondo/data/dataset.h"

namespace rondo {

// Where in `asked` the samples of `batch` stand: a data set may leave samples out that it cannot read, and
// then says in Batch::indices which it has given.
std::vector<std::size_t> kept_places(std::span<const std::int64_t> asked, const Batch& batch);

// Where `batch` says which samples it has, these get the names that `names` has for what was asked.
void rename_samples(Batch& batch, std::span<const std::int64_t> asked, std::span<const std::int64_t> names);

}  // namespace rondo
