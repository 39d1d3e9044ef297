#pragma once

#include <functional>
#include <string>
#include <vector>

#include "rondo/base/time.h"
#include "rondo/channel/store.h"

namespace rondo {

// Returns the value that `rank` has put under `key`, waiting until it is there. Throws TimeoutError that
// names the rank and `subject`, the fact it was to announce, when it has put none within `timeout`. Errors of
// the store that name ranks pass unchanged.
std::string value_of_rank(Store& store, const std::string& key, int rank, const std::string& subject,
                          Duration timeout);

// Returns the ranks of a group of `size` that have put nothing under `key_of(rank)` yet.
std::vector<int> ranks_without_value(Store& store, int size, const std::function<std::string(int)>& key_of);

}  // namespace rondo
