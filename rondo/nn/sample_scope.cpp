#include "rondo/nn/sample_scope.h"

#include <utility>

namespace rondo {
namespace {

std::shared_ptr<const SampleInfo>& innermost() {
  thread_local std::shared_ptr<const SampleInfo> info;
  return info;
}

}  // namespace

SampleScope::SampleScope(SampleInfo info)
    : SampleScope(std::make_shared<const SampleInfo>(std::move(info))) {}

SampleScope::SampleScope(std::shared_ptr<const SampleInfo> info)
    : outer_(std::exchange(innermost(), std::move(info))) {}

SampleScope::~SampleScope() { innermost() = std::move(outer_); }

std::shared_ptr<const SampleInfo> SampleScope::current() { return innermost(); }

}  // namespace rondo
