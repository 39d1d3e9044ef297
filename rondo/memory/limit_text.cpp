#include "rondo/memory/limit_text.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "rondo/base/text.h"

namespace rondo {
namespace {

constexpr std::size_t kUnitsNamed = 8;

using Amount = std::pair<std::uint64_t, std::string>;

// "1.5 GiB activations, 96.0 MiB parameters"
std::string list(std::vector<Amount> amounts, std::size_t most) {
  std::stable_sort(amounts.begin(), amounts.end(),
                   [](const Amount& a, const Amount& b) { return a.first > b.first; });
  std::vector<std::string> parts;
  std::uint64_t rest = 0;
  for (const auto& [bytes, what] : amounts) {
    if (parts.size() < most) {
      parts.push_back(str(to_string(Bytes{bytes}), " ", what));
    } else {
      rest += bytes;
    }
  }
  if (rest > 0) parts.push_back(str(to_string(Bytes{rest}), " in smaller parts"));
  return join(parts, ", ");
}

const char* remedy(MemoryCategory largest) {
  switch (largest) {
    case MemoryCategory::activations:
    case MemoryCategory::temporaries:
      return "checkpointed activations (--activation-checkpointing all), or a smaller batch with more passes "
             "(--batch-size, --gradient-accumulation-steps)";
    case MemoryCategory::parameters:
    case MemoryCategory::gradients:
    case MemoryCategory::optimizer_state:
      return "a strategy that shards it over more ranks, or a smaller model";
    case MemoryCategory::communication:
      return "smaller buckets (--bucket-size), or fewer gathers in flight";
    case MemoryCategory::other:
      break;
  }
  return "smaller batches (--batch-size, --eval-batch-size)";
}

}  // namespace

std::string limit_text(Bytes wanted, MemoryLabel label, const MemoryMoment& moment, Bytes limit,
                       const MemoryUsage& alive) {
  std::vector<Amount> categories;
  std::size_t largest = kMemoryCategories - 1;
  for (std::size_t i = 0; i < kMemoryCategories; ++i) {
    const std::uint64_t bytes = alive.categories[i];
    if (bytes == 0) continue;
    categories.emplace_back(bytes, to_string(static_cast<MemoryCategory>(i)));
    if (bytes > alive.categories[largest]) largest = i;
  }
  std::vector<Amount> units;
  for (const MemoryUsage::Unit& unit : alive.units) {
    for (std::size_t i = 0; i < kMemoryCategories; ++i) {
      if (unit.categories[i] == 0) continue;
      units.emplace_back(unit.categories[i],
                         str(to_string(static_cast<MemoryCategory>(i)), " of ", unit.name));
    }
  }
  const std::string when = moment.step == 0 && *moment.phase == '\0'
                               ? std::string()
                               : str(", step ", moment.step, *moment.phase == '\0' ? "" : ", ", moment.phase);
  return str("out of the memory limit: ", to_string(wanted), " of ", to_string(label.category), " for ",
             memory_unit_name(label.unit), when, " would come on top of ", to_string(Bytes{alive.total}),
             ", the limit of this rank is ", to_string(limit),
             ". Alive: ", categories.empty() ? "nothing" : list(std::move(categories), kMemoryCategories),
             ". Largest: ", units.empty() ? "nothing" : list(std::move(units), kUnitsNamed),
             ". What helps here: ", remedy(static_cast<MemoryCategory>(largest)),
             "; or a higher limit (--memory-limit)");
}

}  // namespace rondo
