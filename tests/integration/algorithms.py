"""Names of the collective algorithms, as users write them."""

ALGORITHMS = ["naive", "all_to_all", "reduce_broadcast", "ring", "halving_doubling", "double_binary_tree", "torus_2d",
              "hierarchical", "direct"]
