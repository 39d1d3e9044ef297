#include "rondo/collective/algorithms/phases.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace rondo::collective {

std::vector<int> all_ranks(int world) {
  std::vector<int> ranks(static_cast<std::size_t>(world));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

int index_in(const std::vector<int>& group, int rank) {
  const auto found = std::find(group.begin(), group.end(), rank);
  return found == group.end() ? -1 : static_cast<int>(found - group.begin());
}

int segments_of(std::uint64_t bytes, Bytes segment) {
  const std::uint64_t size = std::max<std::uint64_t>(segment.count, 1);
  return static_cast<int>(std::max<std::uint64_t>((bytes + size - 1) / size, 1));
}

int log2_floor(int number) { return static_cast<int>(std::bit_width(static_cast<unsigned>(number))) - 1; }

int log2_ceil(int number) { return number == 1 ? 0 : log2_floor(number - 1) + 1; }

void gather_and_add(ScheduleBuilder& builder, int round, int root, const Range& range) {
  if (builder.rank() != root) return builder.send(round, root, range);
  if (builder.world() == 1) return;
  Ranges sources;
  for (int rank = 0; rank < builder.world(); ++rank) {
    sources.push_back(rank == root ? range : builder.scratch(range.bytes));
    if (rank != root) builder.recv(round, rank, sources.back());
  }
  builder.reduce(round, range, std::move(sources));
}

void send_to_all(ScheduleBuilder& builder, int round, int root, const Range& range) {
  if (builder.rank() != root) return builder.recv(round, root, range);
  for (int rank = 0; rank < builder.world(); ++rank) {
    if (rank != root) builder.send(round, rank, range);
  }
}

void star(ScheduleBuilder& builder) {
  const ScheduleRequest& request = builder.request();
  if (request.operation == OperationKind::broadcast) {
    send_to_all(builder, 0, request.root, builder.data());
  } else {
    gather_and_add(builder, 0, request.root, builder.data());
  }
}

Cost star_cost(const ScheduleRequest& request) {
  const std::uint64_t all = request.bytes.count;
  const std::uint64_t of_others = static_cast<std::uint64_t>(request.world - 1) * all;
  const bool is_root = request.rank == request.root;
  if (request.world == 1) return {};
  if (request.operation == OperationKind::broadcast)
    return {1, is_root ? of_others : 0, is_root ? 0 : all, 0};
  return {1, is_root ? 0 : all, is_root ? of_others : 0, is_root ? of_others : 0};
}

void scatter_pieces(ScheduleBuilder& builder, int round, int root, const PieceOf& piece) {
  if (builder.rank() != root) return builder.recv(round, root, piece(builder.rank()));
  for (int rank = 0; rank < builder.world(); ++rank) {
    if (rank != root) builder.send(round, rank, piece(rank));
  }
}

void gather_pieces(ScheduleBuilder& builder, int round, int root, const PieceOf& piece) {
  if (builder.rank() != root) return builder.send(round, root, piece(builder.rank()));
  for (int rank = 0; rank < builder.world(); ++rank) {
    if (rank != root) builder.recv(round, rank, piece(rank));
  }
}

void exchange_and_add(ScheduleBuilder& builder, int round, const PieceOf& piece) {
  if (builder.world() == 1) return;
  const Range own = piece(builder.rank());
  Ranges sources;
  for (int rank = 0; rank < builder.world(); ++rank) {
    if (rank == builder.rank()) {
      sources.push_back(own);
      continue;
    }
    builder.send(round, rank, piece(rank));
    sources.push_back(builder.scratch(own.bytes));
    builder.recv(round, rank, sources.back());
  }
  builder.reduce(round, own, std::move(sources));
}

void exchange_pieces(ScheduleBuilder& builder, int round, const PieceOf& piece) {
  for (int rank = 0; rank < builder.world(); ++rank) {
    if (rank == builder.rank()) continue;
    builder.send(round, rank, piece(builder.rank()));
    builder.recv(round, rank, piece(rank));
  }
}

namespace {

// A position in a ring.
struct RingPlace {
  RingPlace(const std::vector<int>& group, int rank)
      : size(static_cast<int>(group.size())), index(index_in(group, rank)) {
    if (index < 0) return;
    next = group[static_cast<std::size_t>((index + 1) % size)];
    previous = group[static_cast<std::size_t>((index + size - 1) % size)];
  }
  // Index of the piece `back` positions behind this rank's; at most two rounds of the ring.
  int behind(int back) const { return (index + 2 * size - back) % size; }

  int size;
  int index;
  int next = -1;
  int previous = -1;
};

}  // namespace

void ring_reduce_scatter(ScheduleBuilder& builder, int round, const std::vector<int>& group,
                         const PieceOf& piece) {
  const RingPlace place(group, builder.rank());
  if (place.index < 0) return;
  for (int n = 0; n < place.size - 1; ++n) {
    builder.send(round + n, place.next, piece(place.behind(n + 1)));
    builder.recv_reduce(round + n, place.previous, piece(place.behind(n + 2)));
  }
}

void ring_all_gather(ScheduleBuilder& builder, int round, const std::vector<int>& group,
                     const PieceOf& piece) {
  const RingPlace place(group, builder.rank());
  if (place.index < 0) return;
  for (int n = 0; n < place.size - 1; ++n) {
    builder.send(round + n, place.next, piece(place.behind(n)));
    builder.recv(round + n, place.previous, piece(place.behind(n + 1)));
  }
}

Tree make_tree(std::vector<int> parents) {
  Tree tree;
  const std::size_t size = parents.size();
  tree.depth.assign(size, 0);
  tree.slot.assign(size, 0);
  std::vector<int> children(size, 0);
  for (std::size_t rank = 0; rank < size; ++rank) {
    for (int above = parents[rank]; above >= 0; above = parents[static_cast<std::size_t>(above)]) {
      ++tree.depth[rank];
    }
    tree.height = std::max(tree.height, tree.depth[rank]);
    if (parents[rank] < 0) continue;
    int& count = children[static_cast<std::size_t>(parents[rank])];
    tree.slot[rank] = count++;
    tree.fanout = std::max(tree.fanout, count);
  }
  tree.parent = std::move(parents);
  return tree;
}

namespace {

// Calls use(child, parent) for each edge of the tree that contains this rank.
template <class Use>
void for_own_edges(const Tree& tree, int rank, Use use) {
  for (std::size_t child = 0; child < tree.parent.size(); ++child) {
    const int parent = tree.parent[child];
    if (parent >= 0 && (static_cast<int>(child) == rank || parent == rank)) {
      use(static_cast<int>(child), parent);
    }
  }
}

Range segment_of(const ScheduleBuilder& builder, const Range& range, const Pipeline& pipeline, int segment) {
  return piece_of(range, builder.request().element_bytes, pipeline.segments, segment);
}

}  // namespace

void tree_reduce(ScheduleBuilder& builder, int round, const Tree& tree, const Pipeline& pipeline,
                 const Range& range) {
  for_own_edges(tree, builder.rank(), [&](int child, int parent) {
    const auto at = static_cast<std::size_t>(child);
    for (int segment = 0; segment < pipeline.segments; ++segment) {
      const int when = round + pipeline.stride * (pipeline.height - tree.depth[at] + segment) + tree.slot[at];
      const Range piece = segment_of(builder, range, pipeline, segment);
      if (child == builder.rank()) builder.send(when, parent, piece);
      if (parent == builder.rank()) builder.recv_reduce(when, child, piece);
    }
  });
}

void tree_broadcast(ScheduleBuilder& builder, int round, const Tree& tree, const Pipeline& pipeline,
                    const Range& range) {
  for_own_edges(tree, builder.rank(), [&](int child, int parent) {
    const auto at = static_cast<std::size_t>(child);
    for (int segment = 0; segment < pipeline.segments; ++segment) {
      const int when = round + pipeline.stride * (tree.depth[at] - 1 + segment) + tree.slot[at];
      const Range piece = segment_of(builder, range, pipeline, segment);
      if (parent == builder.rank()) builder.send(when, child, piece);
      if (child == builder.rank()) builder.recv(when, parent, piece);
    }
  });
}

}  // namespace rondo::collective
