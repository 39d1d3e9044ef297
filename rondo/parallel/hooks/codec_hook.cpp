#include "rondo/parallel/hooks/codec_hook.h"

#include <torch/types.h>

#include <map>

#include "rondo/backend/coded_collectives.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/parallel/hooks/default_hooks.h"

namespace rondo {
namespace {

// One stream of coded all-reduces per bucket. Also keeps residuals while the bucket layout changes. Used by
// the thread that drives the backward pass.
class CodecStreams {
 public:
  // `always_gathers`: set for an engine without all_to_all.
  CodecStreams(c10::intrusive_ptr<c10d::Backend> engine, std::string codec, bool always_gathers)
      : engine_(std::move(engine)), codec_(std::move(codec)), always_gathers_(always_gathers) {
    collective::make_codec(codec_);
  }

  BucketFuture run(const GradBucket& bucket) {
    const at::Tensor& buffer = bucket.buffer();
    if (buffer.scalar_type() != at::kFloat) return start_average(*engine_, buffer);
    CodedAllReduce& reduction = stream_of(bucket);
    return continue_with(reduction, reduction.start(buffer), buffer);
  }

  // Keys: "residual/7" is the residual of parameter 7, "sum_residual/2" the residual of this rank's sums of
  // bucket 2, and "sum_members/2" the parameters of bucket 2.
  CommState save() const {
    CommState state;
    for (const auto& [member, residual] : kept_) state[str(kResidual, member)] = residual;
    for (const auto& [bucket, stream] : streams_) {
      for_each_part(stream, [&](std::size_t member, const at::Tensor& residual) {
        state[str(kResidual, member)] = residual;
      });
      if (!stream.reduction || !stream.reduction->feedback().sums.defined()) continue;
      state[str(kSumResidual, bucket)] = stream.reduction->feedback().sums;
      state[str(kSumMembers, bucket)] = numbers_to_tensor(stream.members);
    }
    return copy_of(state);
  }

  void restore(const CommState& state) {
    streams_.clear();
    kept_.clear();
    kept_sums_.clear();
    for (const auto& [name, tensor] : state) {
      if (name.starts_with(kResidual)) kept_[number_in(name)] = tensor.clone();
      if (name.starts_with(kSumResidual)) kept_sums_[number_in(name)].residual = tensor.clone();
      if (name.starts_with(kSumMembers)) kept_sums_[number_in(name)].members = tensor_to_numbers(tensor);
    }
  }

 private:
  static constexpr const char* kResidual = "residual/";
  static constexpr const char* kSumResidual = "sum_residual/";
  static constexpr const char* kSumMembers = "sum_members/";

  struct Stream {
    std::vector<std::size_t> members;
    std::vector<std::int64_t> elements;  // number of elements of each member
    std::unique_ptr<CodedAllReduce> reduction;
  };
  struct KeptSum {
    std::vector<std::size_t> members;
    at::Tensor residual;
  };

  static std::size_t number_in(const std::string& name) {
    return static_cast<std::size_t>(parse_integer(name.substr(name.find('/') + 1), name));
  }

  // Calls use(parameter, part of the residual) for each parameter of the stream.
  template <class Use>
  static void for_each_part(const Stream& stream, const Use& use) {
    if (!stream.reduction || !stream.reduction->feedback().values.defined()) return;
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < stream.members.size(); ++i) {
      use(stream.members[i], stream.reduction->feedback().values.narrow(0, offset, stream.elements[i]));
      offset += stream.elements[i];
    }
  }

  static BucketFuture continue_with(CodedAllReduce& reduction, CodedAllReduce::Work work,
                                    const at::Tensor& buffer) {
    if (!work) return buffer;
    return BucketFuture(std::move(work), buffer).then_send([&reduction](const at::Tensor& values) {
      return continue_with(reduction, reduction.next(), values);
    });
  }

  CodedAllReduce& stream_of(const GradBucket& bucket) {
    Stream& stream = streams_[bucket.index()];
    if (stream.reduction && stream.members == bucket.members()) return *stream.reduction;
    // Buckets are launched in order, so this bucket and later ones are not in flight. Their residuals are
    // kept until their parameters appear again.
    for (auto old = streams_.find(bucket.index()); old != streams_.end(); ++old) keep_residuals(old->second);
    stream.members = bucket.members();
    stream.elements.clear();
    for (const at::Tensor& parameter : bucket.parameters()) stream.elements.push_back(parameter.numel());
    stream.reduction =
        std::make_unique<CodedAllReduce>(collective::make_codec(codec_), engine_, ReduceOp::AVG,
                                         /*error_feedback=*/true, always_gathers_);
    stream.reduction->reserve(bucket.buffer());
    for_each_part(stream, [&](std::size_t member, const at::Tensor& residual) {
      const auto kept = kept_.extract(member);
      if (!kept.empty()) put_back(kept.mapped(), residual);
    });
    const auto sums = kept_sums_.extract(bucket.index());
    if (!sums.empty() && sums.mapped().members == stream.members)
      put_back(sums.mapped().residual, stream.reduction->feedback().sums);
    return *stream.reduction;
  }

  static void put_back(const at::Tensor& kept, const at::Tensor& place) {
    if (!place.defined() || !kept.defined() || kept.numel() != place.numel()) {
      throw DataError(str("the error feedback that was saved has ", kept.defined() ? kept.numel() : 0,
                          " values where this model and world need ", place.defined() ? place.numel() : 0));
    }
    place.copy_(kept);
  }

  void keep_residuals(Stream& stream) {
    for_each_part(stream, [&](std::size_t member, const at::Tensor& residual) { kept_[member] = residual; });
    stream.reduction.reset();
  }

  const c10::intrusive_ptr<c10d::Backend> engine_;
  const std::string codec_;
  const bool always_gathers_;
  std::map<std::size_t, Stream> streams_;     // by bucket index
  std::map<std::size_t, at::Tensor> kept_;    // residuals by parameter index
  std::map<std::size_t, KeptSum> kept_sums_;  // by bucket index, as saved
};

CommHook hook_of(const std::shared_ptr<CodecStreams>& streams, const std::string& codec) {
  return {"codec " + codec, [streams](GradBucket& bucket) { return streams->run(bucket); },
          [streams] { return streams->save(); },
          [streams](const CommState& state) { streams->restore(state); }};
}

}  // namespace

CommHook codec_hook(const Group& group, const std::string& codec) {
  // Programs make a hook without a group to check whether the codec exists.
  const auto engine = group.member() ? group.backend() : nullptr;
  return hook_of(std::make_shared<CodecStreams>(engine, codec, /*always_gathers=*/false), codec);
}

CommHook codec_hook(const c10::intrusive_ptr<c10d::Backend>& engine, const std::string& codec) {
  return hook_of(std::make_shared<CodecStreams>(engine, codec, /*always_gathers=*/true), codec);
}

}  // namespace rondo
