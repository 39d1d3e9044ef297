#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace rondo {

// Tensors of one dtype that are averaged together. flat() and assign() are between them and one contiguous
// tensor, in which low-precision dtypes are float32: averages of many ranks would lose bits.
class Fragment {
 public:
  // `moment`: which of the period's moments of averaging is this one's, from 0.
  Fragment(std::vector<at::Tensor> tensors, std::int64_t moment)
      : tensors_(std::move(tensors)), moment_(moment) {}

  std::int64_t moment() const { return moment_; }
  at::Tensor flat() const;                     // a copy of the values, 1-D
  void assign(const at::Tensor& flat) const;   // the values become these
  void advance(const at::Tensor& flat) const;  // these are added to the values

 private:
  // Calls function(tensor, its part of `flat` in its shape).
  template <class Function>
  void for_each_part(const at::Tensor& flat, Function function) const;

  std::vector<at::Tensor> tensors_;
  std::int64_t moment_;
};

// Cuts the tensors, in their order, into `count` parts of about equal bytes (fewer where there are fewer
// tensors), and each part once more wherever the dtype changes; the first part's moment is `first_moment`.
// Tensors that are not floating-point are left out.
std::vector<Fragment> cut_into_fragments(const std::vector<at::Tensor>& tensors, std::int64_t count,
                                         std::int64_t first_moment);

}  // namespace rondo
