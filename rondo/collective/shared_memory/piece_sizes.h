#pragma once

#include <algorithm>
#include <vector>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/collective/request.h"
#include "rondo/collective/shared_memory/owner.h"

namespace rondo::shared_memory {

// How many bytes every rank sends to every other in an all_to_all whose pieces differ: an all_gather that
// the engine runs before the all_to_all, and the owner of its buffers.
class PieceSizes final : public OperationOwner {
 public:
  PieceSizes(const CollectiveRequest& all_to_all, int rank)
      : rank_(static_cast<std::size_t>(rank)),
        ranks_(all_to_all.input_bytes.size()),
        sent_(all_to_all.input_bytes),
        all_(ranks_ * ranks_) {}

  CollectiveRequest request() {
    CollectiveRequest gather{.kind = OperationKind::all_gather, .type = DType::int64, .elements = ranks_};
    gather.input.base = reinterpret_cast<std::byte*>(sent_.data());
    gather.output = {reinterpret_cast<std::byte*>(all_.data()), gather.bytes(), {}};
    return gather;
  }
  bool known() const { return known_; }
  // Sets the size of a full piece, the largest on any rank. Throws MismatchError where a rank sends more or
  // less than this one expects.
  void complete(CollectiveRequest& all_to_all) const {
    for (std::size_t r = 0; r < ranks_; ++r) {
      const std::uint64_t comes = all_[r * ranks_ + rank_];
      if (comes == all_to_all.output_bytes[r]) continue;
      throw MismatchError(str("all_to_all: rank ", rank_, " expects ", all_to_all.output_bytes[r],
                              " bytes from rank ", r, ", which sends ", comes),
                          {static_cast<int>(r)});
    }
    all_to_all.elements = *std::max_element(all_.begin(), all_.end());
  }

  void finish(const std::exception_ptr& error) noexcept override { known_ = !error; }
  void announce() noexcept override {}

 private:
  const std::size_t rank_;
  const std::size_t ranks_;
  std::vector<std::uint64_t> sent_;
  std::vector<std::uint64_t> all_;
  bool known_ = false;
};

}  // namespace rondo::shared_memory
