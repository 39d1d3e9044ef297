#include <torch/types.h>

#include <algorithm>
#include <cstring>

#include "rondo/backend/hierarchical/transfers.h"
#include "rondo/base/log.h"
#include "rondo/base/text.h"
#include "rondo/collective/reduction.h"

namespace rondo::hierarchical {

CompressionTable::CompressionTable(std::string codec) : codec_(codec == "none" ? "" : std::move(codec)) {
  if (active()) collective::make_codec(codec_);  // throws for an unknown one now, not in the first operation
}

std::shared_ptr<Compression> CompressionTable::find(const at::Tensor& buffer) {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [](const auto& entry) { return entry.second.storage.expired(); });
  const c10::intrusive_ptr<c10::StorageImpl> storage = buffer.storage().getWeakStorageImpl().lock();
  const Key key{storage.get(), buffer.storage_offset(), buffer.numel()};
  const auto found = entries_.find(key);
  if (found != entries_.end()) {
    found->second.last_use = ++uses_;
    return found->second.compression;
  }
  auto made = make(buffer.numel());
  entries_.emplace(key,
                   Entry{c10::weak_intrusive_ptr<c10::StorageImpl>(storage), made, buffer.numel(), ++uses_});
  return made;
}

std::shared_ptr<Compression> CompressionTable::make(std::int64_t elements) {
  auto made = std::make_shared<Compression>();
  made->encoder = collective::make_codec(codec_);
  made->decoder = collective::make_codec(codec_);
  if (restored_.empty()) return made;
  if (restored_.front().first != elements) {
    log::warning("backend hierarchical: ",
                 codec_restart_warning(str("is of a buffer of ", restored_.front().first,
                                           " elements, and one of ", elements, " is reduced")));
    restored_.clear();
    return made;
  }
  made->feedback = std::move(restored_.front().second);
  restored_.pop_front();
  return made;
}

void CompressionTable::save(CommState& state) {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [](const auto& entry) { return entry.second.storage.expired(); });
  std::map<std::uint64_t, const Entry*> by_use;
  for (const auto& [key, entry] : entries_) by_use.emplace(entry.last_use, &entry);
  CommState live;
  std::size_t number = 0;
  for (const auto& [use, entry] : by_use) {
    const std::string prefix = str(number++, "/");
    live[prefix + "elements"] = at::scalar_tensor(entry->elements, at::kLong);
    entry->compression->feedback.add_to(live, prefix);
  }
  state.merge(copy_of(live));
}

void CompressionTable::restore(const CommState& state) {
  const std::lock_guard lock(mutex_);
  entries_.clear();
  restored_.clear();
  const auto residual = [&](const std::string& name) {
    const auto found = state.find(name);
    return found == state.end() ? at::Tensor()
                                : found->second.to(at::kCPU, at::kFloat).clone(at::MemoryFormat::Contiguous);
  };
  for (std::size_t number = 0; state.contains(str(number, "/elements")); ++number) {
    const std::string prefix = str(number, "/");
    restored_.emplace_back(state.at(prefix + "elements").item<std::int64_t>(),
                           ErrorFeedback{residual(prefix + "residual"), residual(prefix + "sum_residual")});
  }
}

namespace {

using Transfer = OuterLink::Transfer;
using Lane = OuterLink::Lane;

// Largest part that is sent to all hosts at once: a second round trip would take longer than the bytes.
constexpr std::size_t kDirectBytes = std::size_t{64} << 10;
// Alignment of parts in elements, if the buffer allows it.
constexpr std::uint64_t kAlignment = 16;

struct ChunkRange {
  std::uint64_t begin = 0;
  std::uint64_t size = 0;
};

// Returns part `index` of `count` of `whole`.
ChunkRange part_of(const ChunkRange& whole, int index, int count) {
  const std::uint64_t units = (whole.size + kAlignment - 1) / kAlignment;
  const auto edge = [&](int i) {
    return std::min(whole.size,
                    units * static_cast<std::uint64_t>(i) / static_cast<std::uint64_t>(count) * kAlignment);
  };
  return {whole.begin + edge(index), edge(index + 1) - edge(index)};
}

struct Chunk {
  ChunkRange all;
  // Whether every rank of the host gets an equal part, in one reduce_scatter. Otherwise the first
  // `inter_host_ranks` ranks get one each by a reduce of their own.
  bool scattered = false;
  int inter_host_ranks = 1;
  ChunkRange own;  // this rank's part; empty when it exchanges nothing

  // While the chunk is in flight.
  std::vector<std::vector<std::byte>> received = {};  // by host
  std::vector<std::byte> encoded = {};
  std::vector<Transfer> receives = {};  // by host
  std::vector<Transfer> sends = {};
};

class AllReduce final : public Operation {
 public:
  AllReduce(const CollectiveRequest& request, const HostMap& map, const AllReduceOptions& options,
            std::shared_ptr<Compression> compression)
      : request_(request), width_(element_bytes(request.type)), compression_(std::move(compression)) {
    cut(map, options);
    std::uint64_t own = 0;
    for (const Chunk& chunk : chunks_) {
      residual_at_.push_back(own);
      own += chunk.own.size;
    }
    if (compression_) {
      const auto count = static_cast<std::int64_t>(own);
      compression_->feedback.reserve(*compression_->encoder, count, in_pieces(map) ? count : 0);
    }
    for (int host = 0; host < map.host_count(); ++host) weights_.push_back(map.host_size(host));
  }

  std::size_t chunks() const override { return chunks_.size(); }

  void first(std::size_t index, Transports& transports, const Deadline& deadline) override {
    Chunk& chunk = chunks_[index];
    reduce_within_host(chunk, transports, deadline);
    if (chunk.own.size == 0) return;
    if (compression_) scale(chunk, transports.map);
    start_exchange(index, transports);
  }

  void second(std::size_t index, Transports& transports, const Deadline& deadline) override {
    Chunk& chunk = chunks_[index];
    if (chunk.own.size > 0) finish_exchange(index, transports, deadline);
    intra_host_broadcast(chunk, transports, deadline);
    chunk.received.clear();
    chunk.encoded.clear();
  }

 private:
  std::byte* at(std::uint64_t element) const { return request_.input.base + element * width_; }
  float* floats(const ChunkRange& range) const { return reinterpret_cast<float*>(at(range.begin)); }

  void cut(const HostMap& map, const AllReduceOptions& options) {
    const int ranks = map.host_size();
    const int inter_host_ranks = options.inter_host_ranks > 0
                                     ? std::min(options.inter_host_ranks, map.smallest_host())
                                     : map.smallest_host();
    const bool scatter = map.even() && inter_host_ranks == ranks;
    const std::uint64_t unit = kAlignment * static_cast<std::uint64_t>(inter_host_ranks);
    const std::uint64_t chunk_elements =
        std::max<std::uint64_t>(unit, options.chunk_bytes / width_ / unit * unit);
    const auto add = [&](ChunkRange all, int chunk_inter_host_ranks, bool scattered) {
      Chunk chunk{all, scattered, chunk_inter_host_ranks, {}};
      if (map.local_rank() < chunk_inter_host_ranks)
        chunk.own = part_of(all, map.local_rank(), chunk_inter_host_ranks);
      chunks_.push_back(std::move(chunk));
    };
    std::uint64_t begin = 0;
    // The remainder of the division is exchanged by one rank, like small buffers.
    const std::uint64_t large =
        request_.elements * width_ <= kDirectBytes ? 0 : request_.elements / unit * unit;
    while (begin < large) {
      const std::uint64_t size = std::min(chunk_elements, large - begin);
      add({begin, size}, inter_host_ranks, scatter);
      begin += size;
    }
    if (begin < request_.elements || chunks_.empty()) add({begin, request_.elements - begin}, 1, false);
  }

  // Returns whether large parts are exchanged in two phases.
  bool in_pieces(const HostMap& map) const {
    return map.host_count() > 2 && !(compression_ && compression_->encoder->is_sparse());
  }
  bool in_pieces(const Chunk& chunk, const HostMap& map) const {
    return in_pieces(map) && chunk.own.size * width_ > kDirectBytes;
  }

  // Runs `step` once for each inter-host rank, in place on its part of the chunk, with that rank as root.
  void run_by_inter_host_rank(CollectiveRequest step, const Chunk& chunk, HostGroup& group,
                              const Deadline& deadline) const {
    std::uint64_t last = 0;
    for (int local_rank = 0; local_rank < chunk.inter_host_ranks; ++local_rank) {
      const ChunkRange part = part_of(chunk.all, local_rank, chunk.inter_host_ranks);
      step.root = local_rank;
      step.elements = part.size;
      step.input = {at(part.begin), step.bytes(), {}};
      step.output = step.input;
      last = group.start(step);
    }
    group.wait(last, deadline);
  }

  void reduce_within_host(Chunk& chunk, Transports& transports, const Deadline& deadline) {
    if (!transports.intra_host_reduce) return;
    CollectiveRequest step;
    step.type = request_.type;
    step.reduction = request_.reduction;
    step.call = request_.call;
    if (chunk.scattered) {
      step.kind = OperationKind::reduce_scatter;
      step.elements = chunk.own.size;
      step.input = {at(chunk.all.begin), step.bytes(), {}};
      // The part overwrites this rank's own contribution to it, which no other rank reads.
      step.output = {at(chunk.own.begin), step.bytes(), {}};
      transports.intra_host_reduce->run(step, deadline);
      return;
    }
    step.kind = OperationKind::reduce;
    run_by_inter_host_rank(step, chunk, *transports.intra_host_reduce, deadline);
  }

  // Scales this host's sum so that the plain sum of the encodings is the average over all ranks.
  void scale(const Chunk& chunk, const HostMap& map) const {
    if (request_.reduction != Reduction::average) return;
    const float factor = static_cast<float>(map.host_size()) / static_cast<float>(map.world_size());
    float* values = floats(chunk.own);
    for (std::uint64_t i = 0; i < chunk.own.size; ++i) values[i] *= factor;
  }

  std::span<float> residual(const at::Tensor& all, std::size_t index, const ChunkRange& of) const {
    const std::uint64_t begin = residual_at_[index] + (of.begin - chunks_[index].own.begin);
    return residual_part(all, static_cast<std::int64_t>(begin), static_cast<std::int64_t>(of.size));
  }

  std::size_t message_bytes(const ChunkRange& range) const {
    return compression_ ? compression_->encoder->encoded_bytes(range.size) : range.size * width_;
  }

  // Returns the range that `host` receives from this one in the first phase.
  ChunkRange outgoing(const Chunk& chunk, int host, const HostMap& map) const {
    return in_pieces(chunk, map) ? part_of(chunk.own, host, map.host_count()) : chunk.own;
  }

  void start_exchange(std::size_t index, Transports& transports) {
    Chunk& chunk = chunks_[index];
    const HostMap& map = transports.map;
    const auto hosts = static_cast<std::size_t>(map.host_count());
    const ChunkRange incoming = outgoing(chunk, map.host(), map);
    chunk.received.resize(hosts);
    chunk.receives.resize(hosts);
    for (int host = 0; host < map.host_count(); ++host) {
      if (host == map.host() || incoming.size == 0) continue;
      const auto h = static_cast<std::size_t>(host);
      chunk.received[h].resize(message_bytes(incoming));
      chunk.receives[h] =
          transports.between_hosts->receive(map.counterpart(host, map.local_rank()), Lane::first,
                                            chunk.received[h].data(), chunk.received[h].size());
    }
    if (compression_) encode_parts(index, map);
    // Starts with the next host, so that hosts do not all send to the first one at once.
    for (int step = 1; step < map.host_count(); ++step) {
      const int host = (map.host() + step) % map.host_count();
      const ChunkRange range = outgoing(chunk, host, map);
      if (range.size == 0) continue;
      const std::byte* data =
          compression_ ? chunk.encoded.data() + encoded_at(chunk, host, map) : at(range.begin);
      chunk.sends.push_back(transports.between_hosts->send(map.counterpart(host, map.local_rank()),
                                                           Lane::first, data, message_bytes(range)));
    }
  }

  // Returns the offset of the encoding for `host`. Encodings are read as floats, so each begins at a multiple
  // of 64.
  std::size_t encoded_at(const Chunk& chunk, int host, const HostMap& map) const {
    if (!in_pieces(chunk, map)) return 0;
    return static_cast<std::size_t>(host) * slot_bytes(chunk, map);
  }
  std::size_t slot_bytes(const Chunk& chunk, const HostMap& map) const {
    std::size_t largest = 0;
    for (int host = 0; host < map.host_count(); ++host)
      largest = std::max(largest, message_bytes(outgoing(chunk, host, map)));
    return (largest + 63) / 64 * 64;
  }

  void encode_parts(std::size_t index, const HostMap& map) {
    Chunk& chunk = chunks_[index];
    const bool pieces = in_pieces(chunk, map);
    chunk.encoded.resize(slot_bytes(chunk, map) * (pieces ? static_cast<std::size_t>(map.host_count()) : 1));
    for (int host = 0; host < map.host_count(); ++host) {
      // The piece that this host sums itself stays exact; without pieces, one encoding serves all hosts.
      if (pieces ? host == map.host() : host > 0) continue;
      const ChunkRange range = outgoing(chunk, host, map);
      compression_->encoder->encode(
          {floats(range), range.size},
          {chunk.encoded.data() + encoded_at(chunk, host, map), message_bytes(range)},
          residual(compression_->feedback.values, index, range));
    }
  }

  void wait_for(std::vector<Transfer>& transfers, Transports& transports, const Deadline& deadline) {
    for (Transfer& transfer : transfers) transports.between_hosts->wait(transfer, deadline);
    transfers.clear();
  }

  void finish_exchange(std::size_t index, Transports& transports, const Deadline& deadline) {
    Chunk& chunk = chunks_[index];
    wait_for(chunk.receives, transports, deadline);
    // The sum overwrites the buffers of the sends.
    wait_for(chunk.sends, transports, deadline);
    const ChunkRange range = outgoing(chunk, transports.map.host(), transports.map);
    if (range.size > 0) add_up(chunk, range, transports.map);
    if (in_pieces(chunk, transports.map)) gather_pieces(index, transports, deadline);
  }

  // Adds in host order on every rank, so that all get the same bits.
  void add_up(Chunk& chunk, const ChunkRange& range, const HostMap& map) {
    if (!compression_) {
      std::vector<const std::byte*> sources;
      for (int host = 0; host < map.host_count(); ++host) {
        sources.push_back(host == map.host() ? at(range.begin)
                                             : chunk.received[static_cast<std::size_t>(host)].data());
      }
      std::byte* const destination = at(range.begin);
      const bool average = request_.reduction == Reduction::average;
      rondo::reduce({request_.type,
                     request_.reduction,
                     sources,
                     {&destination, 1},
                     range.size,
                     average ? std::span<const double>(weights_) : std::span<const double>()});
      return;
    }
    const std::span<float> own(floats(range), range.size);
    const bool pieces = in_pieces(chunk, map);
    std::vector<float> sum(range.size);
    for (int host = 0; host < map.host_count(); ++host) {
      if (host == map.host() && pieces) {
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += own[i];
      } else if (host == map.host()) {
        compression_->decoder->decode_add({chunk.encoded.data(), message_bytes(range)}, sum);
      } else {
        compression_->decoder->decode_add(chunk.received[static_cast<std::size_t>(host)], sum);
      }
    }
    std::copy(sum.begin(), sum.end(), own.begin());
  }

  // The second phase: every host sends the piece that it has summed to all others.
  void gather_pieces(std::size_t index, Transports& transports, const Deadline& deadline) {
    Chunk& chunk = chunks_[index];
    const HostMap& map = transports.map;
    const ChunkRange own = outgoing(chunk, map.host(), map);
    std::vector<Transfer> sends;
    std::vector<Transfer> receives;
    const std::byte* data = at(own.begin);
    std::vector<std::byte> encoded;
    if (compression_) {
      encoded.resize(message_bytes(own));
      const std::span<float> values(floats(own), own.size);
      compression_->decoder->encode(values, encoded, residual(compression_->feedback.sums, index, own));
      compression_->decoder->decode(encoded, values);
      data = encoded.data();
    }
    for (int step = 1; step < map.host_count(); ++step) {
      const int host = (map.host() + step) % map.host_count();
      const auto h = static_cast<std::size_t>(host);
      const ChunkRange range = outgoing(chunk, host, map);
      const int peer = map.counterpart(host, map.local_rank());
      if (range.size > 0) {
        std::byte* into = at(range.begin);
        if (compression_) {
          chunk.received[h].resize(message_bytes(range));
          into = chunk.received[h].data();
        }
        receives.push_back(transports.between_hosts->receive(peer, Lane::second, into, message_bytes(range)));
      }
      if (own.size > 0)
        sends.push_back(transports.between_hosts->send(peer, Lane::second, data, message_bytes(own)));
    }
    wait_for(receives, transports, deadline);
    wait_for(sends, transports, deadline);
    if (!compression_) return;
    for (int host = 0; host < map.host_count(); ++host) {
      const ChunkRange range = outgoing(chunk, host, map);
      if (host == map.host() || range.size == 0) continue;
      compression_->decoder->decode(chunk.received[static_cast<std::size_t>(host)],
                                    {floats(range), range.size});
    }
  }

  void intra_host_broadcast(const Chunk& chunk, Transports& transports, const Deadline& deadline) const {
    if (!transports.intra_host_broadcast) return;
    CollectiveRequest step;
    step.type = request_.type;
    step.call = request_.call;
    if (chunk.scattered) {
      step.kind = OperationKind::all_gather;
      step.elements = chunk.own.size;
      step.input = {at(chunk.own.begin), step.bytes(), {}};
      step.output = {at(chunk.all.begin), step.bytes(), {}};
      transports.intra_host_broadcast->run(step, deadline);
      return;
    }
    step.kind = OperationKind::broadcast;
    run_by_inter_host_rank(step, chunk, *transports.intra_host_broadcast, deadline);
  }

  CollectiveRequest request_;
  std::size_t width_;
  std::shared_ptr<Compression> compression_;
  std::vector<Chunk> chunks_;
  std::vector<std::uint64_t> residual_at_;  // start of each chunk's residual
  std::vector<double> weights_;             // number of ranks of each host
};

}  // namespace

std::unique_ptr<Operation> all_reduce(const CollectiveRequest& request, const HostMap& map,
                                      const AllReduceOptions& options,
                                      std::shared_ptr<Compression> compression) {
  return std::make_unique<AllReduce>(request, map, options, std::move(compression));
}

}  // namespace rondo::hierarchical
