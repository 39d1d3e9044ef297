#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/collective/request.h"
#include "rondo/collective/shared_memory/owner.h"
#include "rondo/collective/shared_memory/peers.h"

namespace rondo::shared_memory {

// The sizes of all pieces of an all_to_all with different pieces: an all_gather that the engine runs before
// the all_to_all, and the owner of its buffers.
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
  // Sets the size of a full piece, the largest on any rank. Throws MismatchError if a rank sends another size
  // than this one expects.
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

// Data path of an operation; depends on the size and on the buffers that all ranks have registered.
enum class Path : std::uint8_t {
  inlined,    // inside the slot
  one_phase,  // small all_reduce: every rank reads all staging buffers and reduces for itself
  pulled,     // every rank reads its data from staging or in place; no second phase
  staged,    // all_reduce: each rank reduces its slice of a chunk in all staging buffers, as in_place does in
             // the buffers themselves, so that a cache line goes to one peer and back
  in_place,  // all_reduce of registered buffers: each rank reduces its slice and writes it into all buffers
};

// A collective in flight on this rank. Three cursors move over its chunks: `published` (this rank's data is
// visible), `reduced` (this rank has read all its inputs and reduced its part), `consumed` (it needs no more
// data of others).
//
// The order of additions is rank 0, 1, 2, ... for every element on every path, so results depend neither on
// the size of a buffer, nor on its path, nor on the order of arrival.
class Operation {
 public:
  Operation(CollectiveRequest&& request, std::uint64_t sequence, std::uint64_t first_ticket,
            const Peers& peers);

  std::uint64_t sequence() const { return sequence_; }
  std::uint64_t end_ticket() const { return first_ticket_ + chunks_; }
  const CollectiveRequest& request() const { return request_; }
  // Returns whether its data fits the slot.
  bool small() const { return path_ == Path::inlined; }

  // Each of the four functions progresses as far as possible without waiting and returns whether it moved;
  // each must be called for operations in order. `least_consumed` is the lowest `consumed` of all ranks; the
  // slot is free once it has reached `slot_free_ticket`. describe() publishes the operation with its first
  // chunk, publish() the other chunks, work() reduces, take() fetches results.
  bool describe(std::uint64_t slot_free_ticket, std::uint64_t least_consumed);
  bool publish(std::uint64_t least_consumed);
  bool work();
  bool take();
  // Continues an operation with a payload in the slot, which the caller has published: describe() and
  // publish() have no more to do.
  void continue_published();

  bool described() const { return described_; }
  bool fully_published() const { return described_ && published_ == chunks_; }
  bool fully_reduced() const { return reduced_ == chunks_; }
  // Returns whether all is done here, and no peer will access this rank's buffers any more.
  bool complete() const;
  // Returns the ranks that this operation is waiting for now.
  std::vector<int> missing() const;

 private:
  bool this_rank_posts() const;
  bool rank_posts(int rank) const;
  bool this_rank_works() const;
  bool resolve();
  void copy_in(std::uint64_t chunk);
  bool available(std::uint64_t chunk) const;
  bool all_reduced(std::uint64_t ticket) const;
  void work_on(std::uint64_t chunk);
  // Copies the chunk, between this rank's buffer and its staging, but for the slice that this rank reduces.
  void copy_slices_of_peers(std::byte* to, const std::byte* from, std::uint64_t chunk) const;
  void reduce_in_place();
  void reduce_slice_of(std::uint64_t chunk);
  // Reduces this rank's slice of `elements` in the buffers of all ranks.
  template <class BufferOf>
  void reduce_own_slice(std::size_t elements, const BufferOf& buffer_of);
  void reduce_chunk(std::uint64_t chunk, std::size_t piece, std::byte* destination);
  std::vector<double> weights() const;
  // Takes lines of a peer's staging that this rank has read, and no other rank reads, out of the peer's
  // cache, by a store to each. The peer's next stores to lines of which another processor has a copy would
  // take two to three times as long (docs/decisions/0088-readers-take-the-lines-of-staging.md).
  void take_lines(int rank, const std::byte* from, std::size_t bytes) const;
  void copy_from(int rank, std::uint64_t chunk, std::size_t source_piece, std::byte* to, std::uint64_t limit);

  // Returns the bytes of chunk `chunk` of one piece.
  std::size_t chunk_size(std::uint64_t chunk) const;
  // Returns the address in this process of chunk `chunk` of piece `piece` of a rank's input.
  const std::byte* source(int rank, std::size_t piece, std::uint64_t chunk) const;
  std::byte* staging(int rank, std::uint64_t chunk) const;
  const OperationHeader& header_of(int rank) const;
  Slot& slot_of(int rank) const;

  // Elements [begin, end) of `elements` that one rank reduces.
  struct Slice {
    std::size_t begin;
    std::size_t end;
    std::size_t size() const { return end - begin; }
  };
  Slice slice(int rank, std::size_t elements) const;

  CollectiveRequest request_;
  std::uint64_t sequence_;
  std::uint64_t first_ticket_;
  const Peers* peers_;

  std::size_t piece_bytes_;  // size of one piece
  std::size_t pieces_in_;    // number of pieces of an input
  bool sole_reader_;         // only one rank reads a piece
  std::size_t chunk_bytes_;  // size of a chunk of one piece
  std::uint64_t chunks_;
  Path path_;
  bool registered_ = false;      // this rank's input can be read in place
  bool reads_in_place_ = false;  // a peer's input is read in place
  bool described_ = false;       // the slot is published
  bool resolved_ = false;        // all ranks' slots are published and agree
  std::uint64_t published_ = 0;
  std::uint64_t reduced_ = 0;
  std::uint64_t consumed_ = 0;
};

}  // namespace rondo::shared_memory
