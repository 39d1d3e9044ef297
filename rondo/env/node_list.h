#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rondo::env {

// Slurm's compressed list of hosts, expanded in order: "gnode[10,20,25-27],n[01-03]" gives gnode10, gnode20,
// gnode25, gnode26, gnode27, n01, n02, n03. Several brackets in one name multiply ("r[1-2]n[1-2]"), as in
// Slurm. Throws UsageError naming `what`, the list and the position for anything malformed, and for more than
// 1,000,000 hosts.
std::vector<std::string> expand_node_list(std::string_view list, std::string_view what);

// The inverse: neighbours with a common prefix and the same number of digits share a bracket. Expanding the
// result gives `hosts` again. Names must be host names (letters, digits, '-', '.', '_').
std::string compress_node_list(const std::vector<std::string>& hosts);

// Slurm's tasks per node: "2(x3),1" gives 2, 2, 2, 1. Throws UsageError naming `what` and the text.
std::vector<int> expand_tasks_per_node(std::string_view text, std::string_view what);

}  // namespace rondo::env
