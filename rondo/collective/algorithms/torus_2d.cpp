// Ranks form a grid of rows and columns, each a ring: rings along the columns, then along the rows on the
// remaining data, and back. The bytes of the ring in (rows - 1) + (columns - 1) rounds in each direction,
// between neighbours of a torus network only. Ying et al., "Image Classification at Supercomputer Scale",
// 2018; Mikami et al., "Massively Distributed SGD", 2018.
#include <algorithm>

#include "rondo/collective/algorithms/phases.h"
#include "rondo/collective/algorithms/registry.h"

namespace rondo::collective {
namespace {

struct Grid {
  explicit Grid(const ScheduleRequest& request) : rows(request.rows) {
    if (rows == 0) {
      rows = 1;
      for (int divisor = 1; divisor * divisor <= request.world; ++divisor) {
        if (request.world % divisor == 0) rows = divisor;
      }
    }
    columns = request.world / rows;
    row = request.rank / columns;
    column = request.rank % columns;
  }
  std::vector<int> own_row() const {
    std::vector<int> ranks;
    for (int c = 0; c < columns; ++c) ranks.push_back(row * columns + c);
    return ranks;
  }
  std::vector<int> own_column() const {
    std::vector<int> ranks;
    for (int r = 0; r < rows; ++r) ranks.push_back(r * columns + column);
    return ranks;
  }
  // Rounds of the rings in one direction.
  int rounds() const { return rows - 1 + columns - 1; }

  int rows = 1;
  int columns = 1;
  int row = 0;
  int column = 0;
};

// The column rings divide the data by rows, and the row rings divide a row's piece by columns: the rest on a
// rank is its part.
void torus_reduce_scatter(ScheduleBuilder& builder, int round, const Grid& grid) {
  ring_reduce_scatter(builder, round, grid.own_column(), [&](int row) {
    return builder.pieces(builder.world(), row * grid.columns, (row + 1) * grid.columns);
  });
  ring_reduce_scatter(builder, round + grid.rows - 1, grid.own_row(), [&](int column) {
    return builder.piece(builder.world(), grid.row * grid.columns + column);
  });
}

void torus_all_gather(ScheduleBuilder& builder, int round, const Grid& grid) {
  ring_all_gather(builder, round, grid.own_row(), [&](int column) {
    return builder.piece(builder.world(), grid.row * grid.columns + column);
  });
  ring_all_gather(builder, round + grid.columns - 1, grid.own_column(), [&](int row) {
    return builder.pieces(builder.world(), row * grid.columns, (row + 1) * grid.columns);
  });
}

// Returns the tree along the root's row, and from each rank of that row along its column.
Tree tree_of(const ScheduleRequest& request, const Grid& grid) {
  const int root_row = request.root / grid.columns;
  std::vector<int> parents(static_cast<std::size_t>(request.world), -1);
  for (int rank = 0; rank < request.world; ++rank) {
    if (rank == request.root) continue;
    const int row = rank / grid.columns;
    const int column = rank % grid.columns;
    parents[static_cast<std::size_t>(rank)] =
        row != root_row ? (row + grid.rows - 1) % grid.rows * grid.columns + column
                        : row * grid.columns + (column + grid.columns - 1) % grid.columns;
  }
  return make_tree(std::move(parents));
}

Pipeline pipeline_of(const ScheduleRequest& request, const Grid& grid) {
  return {segments_of(request.bytes.count, request.segment), grid.rounds(),
          grid.rows > 1 && grid.columns > 1 ? 2 : 1};
}

Schedule schedule_torus_2d(const ScheduleRequest& request) {
  ScheduleBuilder builder(request, "torus_2d");
  const Grid grid(request);
  switch (request.operation) {
    case OperationKind::all_reduce:
      torus_reduce_scatter(builder, 0, grid);
      torus_all_gather(builder, grid.rounds(), grid);
      return builder.finish(2 * grid.rounds());
    case OperationKind::reduce_scatter:
      torus_reduce_scatter(builder, 0, grid);
      return builder.finish(grid.rounds());
    case OperationKind::all_gather:
      torus_all_gather(builder, 0, grid);
      return builder.finish(grid.rounds());
    case OperationKind::broadcast:
      tree_broadcast(builder, 0, tree_of(request, grid), pipeline_of(request, grid), builder.data());
      return builder.finish(pipeline_of(request, grid).rounds());
    default:
      tree_reduce(builder, 0, tree_of(request, grid), pipeline_of(request, grid), builder.data());
      return builder.finish(pipeline_of(request, grid).rounds());
  }
}

Cost cost_of_torus_2d(const ScheduleRequest& request) {
  const Grid grid(request);
  const std::uint64_t all = request.bytes.count;
  const std::uint64_t once =
      all / static_cast<std::uint64_t>(request.world) * static_cast<std::uint64_t>(request.world - 1);
  // Children in the tree: the next rank of the root's row, unless that closes the ring, and the next one of
  // the column.
  const int root_row = request.root / grid.columns;
  const int root_column = request.root % grid.columns;
  const bool next_in_row =
      grid.row == root_row && (grid.column + 1) % grid.columns != root_column && grid.columns > 1;
  const bool next_in_column = (grid.row + 1) % grid.rows != root_row && grid.rows > 1;
  const std::uint64_t below = (next_in_row ? all : 0) + (next_in_column ? all : 0);
  const std::uint64_t above = request.rank == request.root ? 0 : all;
  const int tree_rounds = pipeline_of(request, grid).rounds();
  switch (request.operation) {
    case OperationKind::all_reduce:
      return {2 * grid.rounds(), 2 * once, 2 * once, 0};
    case OperationKind::broadcast:
      return {tree_rounds, below, above, 0};
    case OperationKind::reduce:
      return {tree_rounds, above, below, 0};
    default:
      return {grid.rounds(), once, once, 0};
  }
}

}  // namespace

Algorithm torus_2d() {
  return {"torus_2d",
          "rings along the columns of a grid of ranks, then along its rows",
          {OperationKind::all_reduce, OperationKind::reduce_scatter, OperationKind::all_gather,
           OperationKind::broadcast, OperationKind::reduce},
          schedule_torus_2d,
          cost_of_torus_2d};
}

}  // namespace rondo::collective
