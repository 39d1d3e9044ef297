#include "rondo/collective/shared_memory/operation.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/collective/reduction.h"
#include "rondo/collective/shared_memory/address_per_rank.h"
#include "rondo/collective/shared_memory/operation_header.h"

namespace rondo::shared_memory {
namespace {

bool has_piece_per_rank(OperationKind kind) {
  return kind == OperationKind::reduce_scatter || kind == OperationKind::scatter ||
         kind == OperationKind::all_to_all;
}

bool reads_at_root_only(OperationKind kind) {
  return kind == OperationKind::reduce || kind == OperationKind::gather;
}

bool comes_from_root(OperationKind kind) {
  return kind == OperationKind::broadcast || kind == OperationKind::scatter;
}

}  // namespace

Operation::Operation(CollectiveRequest&& request, std::uint64_t sequence, std::uint64_t first_ticket,
                     const Peers& peers)
    : request_(std::move(request)),
      sequence_(sequence),
      first_ticket_(first_ticket),
      peers_(&peers),
      piece_bytes_(request_.by_schedule ? 0 : request_.bytes()),
      pieces_in_(has_piece_per_rank(request_.kind) ? static_cast<std::size_t>(peers.size()) : 1),
      sole_reader_(pieces_in_ > 1 || reads_at_root_only(request_.kind) || peers.size() == 2) {
  chunk_bytes_ = kChunkBytes / pieces_in_ / kCacheLine * kCacheLine;
  chunks_ = std::max<std::uint64_t>(1, (piece_bytes_ + chunk_bytes_ - 1) / chunk_bytes_);
  const bool is_all_reduce = request_.kind == OperationKind::all_reduce;
  if (piece_bytes_ * pieces_in_ <= kInlineBytes) {
    path_ = Path::inlined;
  } else if (!is_all_reduce) {
    path_ = Path::pulled;
  } else {
    // resolve() may change the path to in_place, depending on the peers' slots.
    path_ = piece_bytes_ <= kOnePhaseBytes ? Path::one_phase : Path::staged;
  }
  const bool may_register = path_ == Path::pulled || path_ == Path::staged;
  registered_ = may_register && this_rank_posts() && request_.input.contiguous() &&
                request_.input_bytes.empty() && (pieces_in_ == 1 || request_.input.stride == piece_bytes_) &&
                peers_->registered(request_.input.base);
}

bool Operation::rank_posts(int rank) const {
  if (request_.kind == OperationKind::barrier || request_.by_schedule) return false;
  return !comes_from_root(request_.kind) || rank == request_.root;
}

bool Operation::this_rank_posts() const { return rank_posts(peers_->rank()); }

bool Operation::this_rank_works() const {
  return !request_.by_schedule && (!reads_at_root_only(request_.kind) || peers_->rank() == request_.root);
}

Slot& Operation::slot_of(int rank) const { return peers_->segment(rank).slots[sequence_ % kSlots]; }

const OperationHeader& Operation::header_of(int rank) const { return slot_of(rank).header; }

std::size_t Operation::chunk_size(std::uint64_t chunk) const {
  const std::size_t begin = chunk * chunk_bytes_;
  return std::min(chunk_bytes_, piece_bytes_ - std::min(begin, piece_bytes_));
}

std::byte* Operation::staging(int rank, std::uint64_t chunk) const {
  if (path_ == Path::inlined) return slot_of(rank).payload;
  return peers_->segment(rank).staging + (first_ticket_ + chunk) % kStagingChunks * kChunkBytes;
}

const std::byte* Operation::source(int rank, std::size_t piece, std::uint64_t chunk) const {
  if (rank == peers_->rank()) return request_.input.at(piece) + chunk * chunk_bytes_;
  const std::uint64_t offset = header_of(rank).arena_offset;
  if (path_ == Path::pulled && offset != kNotRegistered) {
    return peers_->arena_address(rank, offset) + piece * piece_bytes_ + chunk * chunk_bytes_;
  }
  const std::size_t piece_stride = path_ == Path::inlined ? piece_bytes_ : chunk_bytes_;
  return staging(rank, chunk) + piece * piece_stride;
}

Operation::Slice Operation::slice(int rank, std::size_t elements) const {
  // Slices begin on cache lines, so that two ranks never write to the same line.
  const std::size_t line = kCacheLine / element_bytes(request_.type);
  const std::size_t lines = (elements + line - 1) / line;
  const auto size = static_cast<std::size_t>(peers_->size());
  const auto at = static_cast<std::size_t>(rank);
  return {std::min(elements, lines * at / size * line), std::min(elements, lines * (at + 1) / size * line)};
}

bool Operation::describe(std::uint64_t slot_free_ticket, std::uint64_t least_consumed) {
  if (described_ || least_consumed < slot_free_ticket) return false;
  if (this_rank_posts() && !registered_) {
    if (path_ != Path::inlined && first_ticket_ + 1 > least_consumed + kStagingChunks) return false;
    copy_in(0);
  }
  publish_header(
      slot_of(peers_->rank()),
      make_header(request_, registered_ ? peers_->arena_offset(request_.input.base) : kNotRegistered),
      sequence_);
  described_ = true;
  if (!this_rank_posts() || (registered_ && path_ == Path::pulled)) {
    published_ = chunks_;
  } else if (!registered_) {
    published_ = 1;
  }
  return true;
}

void Operation::continue_published() {
  described_ = true;
  published_ = chunks_;
}

bool Operation::publish(std::uint64_t least_consumed) {
  // A registered all_reduce buffer must go through staging unless all ranks' buffers are registered.
  if (!described_ || published_ == chunks_ || (registered_ && !resolved_)) return false;
  if (path_ == Path::in_place) {
    published_ = chunks_;
    return true;
  }
  bool moved = false;
  while (published_ < chunks_ && first_ticket_ + published_ + 1 <= least_consumed + kStagingChunks) {
    copy_in(published_);
    ++published_;
    peers_->own().published.store(first_ticket_ + published_, std::memory_order_release);
    moved = true;
  }
  return moved;
}

void Operation::copy_in(std::uint64_t chunk) {
  std::byte* to = staging(peers_->rank(), chunk);
  const std::size_t size = chunk_size(chunk);
  const std::size_t piece_stride = path_ == Path::inlined ? piece_bytes_ : chunk_bytes_;
  for (std::size_t piece = 0; piece < pieces_in_; ++piece) {
    std::size_t count = size;
    if (!request_.input_bytes.empty()) {
      const std::uint64_t begin = chunk * chunk_bytes_;
      count = std::min<std::uint64_t>(
          size, request_.input_bytes[piece] - std::min(begin, request_.input_bytes[piece]));
    }
    // A rank reads its own piece in place.
    if (count == 0 || (pieces_in_ > 1 && piece == static_cast<std::size_t>(peers_->rank()))) continue;
    const std::byte* from = request_.input.at(piece) + chunk * chunk_bytes_;
    if (path_ == Path::staged) {
      // This rank reduces its own slice from the input; peers reduce theirs in this staging buffer.
      copy_slices_of_peers(to, from, chunk);
    } else {
      std::memcpy(to + piece * piece_stride, from, count);
    }
  }
}

bool Operation::resolve() {
  if (resolved_) return true;
  for (int r = 0; r < peers_->size(); ++r) {
    const Slot& slot = slot_of(r);
    if (slot.sequence.load() == sequence_ + 1) continue;
    // A payload in two cache lines: requests the second one while the first one is awaited.
    if (path_ == Path::inlined) __builtin_prefetch(reinterpret_cast<const std::byte*>(&slot) + kCacheLine);
    return false;
  }
  const OperationHeader& own = header_of(peers_->rank());
  for (int r = 0; r < peers_->size(); ++r) {
    if (agree(own, header_of(r))) continue;
    const CollectiveRequest theirs = request_of(header_of(r));
    throw MismatchError(
        str("ranks disagree at operation ", sequence_, " of group '", peers_->options().group_name,
            "': ", peers_->self(), " ", describe_call(request_.call, rondo::describe(request_)), ", but ",
            peers_->who(r), " ", describe_call(theirs.call, rondo::describe(theirs)),
            ". All ranks must make the same calls in the same order with the same shapes and dtypes."),
        {r});
  }
  if (path_ == Path::staged) {
    bool all_registered = true;
    for (int r = 0; r < peers_->size(); ++r) all_registered &= header_of(r).arena_offset != kNotRegistered;
    if (all_registered) path_ = Path::in_place;
  }
  for (int r = 0; path_ == Path::pulled && r < peers_->size(); ++r) {
    reads_in_place_ |= r != peers_->rank() && rank_posts(r) && header_of(r).arena_offset != kNotRegistered;
  }
  resolved_ = true;
  return true;
}

bool Operation::available(std::uint64_t chunk) const {
  for (int r = 0; r < peers_->size(); ++r) {
    if (r == peers_->rank() || !rank_posts(r)) continue;
    const bool registered = header_of(r).arena_offset != kNotRegistered;
    if (path_ == Path::pulled && registered) continue;
    // The slot itself contains or announces the first chunk of an unregistered buffer.
    if (chunk == 0 && !registered) continue;
    if (peers_->segment(r).published.load() < first_ticket_ + chunk + 1) return false;
  }
  return true;
}

bool Operation::work() {
  if (!described_ || reduced_ == chunks_ || !resolve()) return false;
  if (path_ == Path::in_place) {
    {
      const Touching touching(*peers_);
      reduce_in_place();
    }
    reduced_ = chunks_;
    peers_->own().reduced.store(end_ticket(), std::memory_order_release);
    return true;
  }
  bool moved = false;
  while (reduced_ < chunks_) {
    // On the staged path this rank's own chunk must be published before it reduces, because the result goes
    // into the same buffer.
    if (reduced_ >= published_) break;
    if (this_rank_works() && !available(reduced_)) break;
    if (this_rank_works() && reads_in_place_) {
      const Touching touching(*peers_);
      work_on(reduced_);
    } else if (this_rank_works()) {
      work_on(reduced_);
    }
    ++reduced_;
    peers_->own().reduced.store(first_ticket_ + reduced_, std::memory_order_release);
    moved = true;
  }
  return moved;
}

void Operation::work_on(std::uint64_t chunk) {
  const int rank = peers_->rank();
  const auto own = static_cast<std::size_t>(rank);
  const std::size_t offset = chunk * chunk_bytes_;
  switch (request_.kind) {
    case OperationKind::all_reduce:
      if (path_ == Path::staged) {
        reduce_slice_of(chunk);
      } else {
        reduce_chunk(chunk, 0, request_.output.base + offset);
      }
      break;
    case OperationKind::reduce:
      reduce_chunk(chunk, 0, request_.output.base + offset);
      break;
    case OperationKind::reduce_scatter:
      reduce_chunk(chunk, own, request_.output.base + offset);
      break;
    case OperationKind::all_gather:
    case OperationKind::gather:
      for (int r = 0; r < peers_->size(); ++r) {
        copy_from(r, chunk, 0, request_.output.at(static_cast<std::size_t>(r)), piece_bytes_);
      }
      break;
    case OperationKind::broadcast:
      copy_from(request_.root, chunk, 0, request_.output.base, piece_bytes_);
      break;
    case OperationKind::scatter:
      copy_from(request_.root, chunk, own, request_.output.base, piece_bytes_);
      break;
    case OperationKind::all_to_all:
      for (int r = 0; r < peers_->size(); ++r) {
        const auto at = static_cast<std::size_t>(r);
        copy_from(r, chunk, own, request_.output.at(at),
                  request_.output_bytes.empty() ? piece_bytes_ : request_.output_bytes[at]);
      }
      break;
    case OperationKind::barrier:
      break;
  }
}

void Operation::copy_from(int rank, std::uint64_t chunk, std::size_t source_piece, std::byte* to,
                          std::uint64_t limit) {
  const std::uint64_t begin = chunk * chunk_bytes_;
  const std::size_t count = std::min<std::uint64_t>(chunk_size(chunk), limit - std::min(begin, limit));
  const std::byte* from = source(rank, source_piece, chunk);
  if (count == 0 || from == to + begin) return;
  std::memcpy(to + begin, from, count);
  take_lines(rank, from, count);
}

void Operation::take_lines(int rank, const std::byte* from, std::size_t bytes) const {
  if (path_ != Path::pulled || !sole_reader_ || rank == peers_->rank()) return;
  if (header_of(rank).arena_offset != kNotRegistered) return;
  auto* line = const_cast<volatile std::byte*>(from);
  for (std::size_t i = 0; i < bytes; i += kCacheLine) line[i] = line[i];
}

std::vector<double> Operation::weights() const {
  std::vector<double> all;
  if (!request_.weighted) return all;
  for (int r = 0; r < peers_->size(); ++r) all.push_back(header_of(r).weight);
  return all;
}

void Operation::reduce_chunk(std::uint64_t chunk, std::size_t piece, std::byte* destination) {
  AddressPerRank<const std::byte*> sources(peers_->size());
  for (std::size_t r = 0; r < static_cast<std::size_t>(peers_->size()); ++r)
    sources[r] = source(static_cast<int>(r), piece, chunk);
  reduce({request_.type,
          request_.reduction,
          sources.span(),
          {&destination, 1},
          chunk_size(chunk) / element_bytes(request_.type),
          weights()});
  for (std::size_t r = 0; r < static_cast<std::size_t>(peers_->size()); ++r)
    take_lines(static_cast<int>(r), sources[r], chunk_size(chunk));
}

void Operation::reduce_slice_of(std::uint64_t chunk) {
  reduce_own_slice(chunk_size(chunk) / element_bytes(request_.type), [&](int rank) {
    return rank == peers_->rank() ? request_.output.base + chunk * chunk_bytes_ : staging(rank, chunk);
  });
}

void Operation::reduce_in_place() {
  reduce_own_slice(request_.elements,
                   [&](int rank) { return peers_->arena_address(rank, header_of(rank).arena_offset); });
}

template <class BufferOf>
void Operation::reduce_own_slice(std::size_t elements, const BufferOf& buffer_of) {
  const Slice range = slice(peers_->rank(), elements);
  if (range.size() == 0) return;
  AddressPerRank<const std::byte*> sources(peers_->size());
  AddressPerRank<std::byte*> destinations(peers_->size());
  for (int r = 0; r < peers_->size(); ++r) {
    const auto at = static_cast<std::size_t>(r);
    destinations[at] = buffer_of(r) + range.begin * element_bytes(request_.type);
    sources[at] = destinations[at];
  }
  reduce({request_.type, request_.reduction, sources.span(), destinations.span(), range.size(), weights()});
}

bool Operation::all_reduced(std::uint64_t ticket) const {
  for (int r = 0; r < peers_->size(); ++r) {
    if (peers_->segment(r).reduced.load() < ticket) return false;
  }
  return true;
}

bool Operation::take() {
  if (consumed_ == reduced_) return false;
  const std::uint64_t before = consumed_;
  if (path_ == Path::staged) {
    while (consumed_ < reduced_ && all_reduced(first_ticket_ + consumed_ + 1)) {
      copy_slices_of_peers(request_.output.base + consumed_ * chunk_bytes_,
                           staging(peers_->rank(), consumed_), consumed_);
      ++consumed_;
    }
  } else if (path_ != Path::in_place || all_reduced(end_ticket())) {
    consumed_ = reduced_;
  }
  if (consumed_ != before) peers_->own().consumed.store(first_ticket_ + consumed_, std::memory_order_release);
  return consumed_ != before;
}

void Operation::copy_slices_of_peers(std::byte* to, const std::byte* from, std::uint64_t chunk) const {
  const std::size_t width = element_bytes(request_.type);
  const Slice own = slice(peers_->rank(), chunk_size(chunk) / width);
  std::memcpy(to, from, own.begin * width);
  std::memcpy(to + own.end * width, from + own.end * width, chunk_size(chunk) - own.end * width);
}

bool Operation::complete() const {
  if (consumed_ != chunks_) return false;
  // Peers read a registered input in place; the caller may reuse it only after they have finished.
  return !registered_ || path_ == Path::in_place || all_reduced(end_ticket());
}

std::vector<int> Operation::missing() const {
  std::vector<int> late;
  for (int r = 0; r < peers_->size(); ++r) {
    if (r != peers_->rank() && slot_of(r).sequence.load() < sequence_ + 1) late.push_back(r);
  }
  if (!late.empty()) return late;
  for (int r = 0; r < peers_->size(); ++r) {
    if (r != peers_->rank() && peers_->segment(r).reduced.load() < end_ticket()) late.push_back(r);
  }
  return late;
}

}  // namespace rondo::shared_memory
