#include "rondo/server/memory.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <thread>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/channel/waiting.h"

namespace rondo::server {
namespace {

constexpr std::uint64_t kMagic = 0x72646f2d70732d33ULL;  // magic number of this layout
constexpr std::size_t kPageBytes = 4096;
constexpr int kSpins = 256;
constexpr std::uint64_t kMostElements = std::uint64_t{1} << 40;

constexpr std::size_t rounded(std::size_t value, std::size_t step = kPageBytes) {
  return (value + step - 1) / step * step;
}

// Allocator of consecutive page-aligned regions of the file.
struct Places {
  std::size_t next = 0;
  std::size_t take(std::size_t bytes) {
    const std::size_t place = next;
    next += rounded(bytes);
    return place;
  }
};

// Returns the capacity of a worker's ring. A synchronous worker pushes a gradient of each variable and the
// end of the step before any is applied, and end_step() leaves space for as many entries again.
std::uint64_t ring_of(std::size_t variables) { return std::bit_ceil(2 * variables + 8); }

struct Parts {
  std::size_t header, workers, rings, variables;
};

Parts take_parts(Places& places, std::size_t variables, std::size_t workers) {
  Parts parts{};
  parts.header = places.take(sizeof(Header));
  parts.workers = places.take(workers * sizeof(WorkerState));
  parts.rings = places.take(workers * ring_of(variables) * sizeof(Entry));
  parts.variables = places.take(variables * sizeof(VariableState));
  return parts;
}

std::size_t bytes_of_names(const std::vector<VariableSpec>& variables) {
  std::size_t bytes = 1;
  for (const VariableSpec& variable : variables) bytes += variable.name.size() + 1;
  return bytes;
}

std::size_t record_elements(const std::vector<VariableSpec>& variables) {
  std::size_t most = kBlockElements;
  for (const VariableSpec& variable : variables) most = std::max<std::size_t>(most, variable.row_elements);
  return most;
}

// Calls place(variable, values, slots, changed, area, area_bytes) with the offsets of each variable.
template <class Place>
void place_variables(Places& places, const std::vector<VariableSpec>& variables, std::size_t workers,
                     const Place& place) {
  for (std::size_t v = 0; v < variables.size(); ++v) {
    const VariableSpec& spec = variables[v];
    const std::size_t bytes = spec.elements() * sizeof(float);
    const std::size_t values = places.take(bytes);
    const std::size_t slots[kMostSlots] = {places.take(bytes), places.take(bytes)};
    const std::size_t changed = spec.sparse ? places.take(kChangedRows * sizeof(std::uint64_t)) : 0;
    const std::size_t area_bytes = rounded(bytes + (spec.sparse ? spec.rows * sizeof(std::uint64_t) : 0));
    place(v, values, slots, changed, places.take(workers * area_bytes), area_bytes);
  }
}

void check(const std::vector<VariableSpec>& variables, const ServerOptions& options) {
  if (options.workers < 1 || options.workers > static_cast<std::uint32_t>(kMostWorkers))
    throw UsageError(str("a server has from 1 to ", kMostWorkers, " workers, not ", options.workers));
  if (options.mode == Mode::sync && options.backup_workers >= options.workers) {
    throw UsageError(str(options.backup_workers, " backup workers of ", options.workers,
                         " workers leave none whose gradients would count"));
  }
  for (const VariableSpec& variable : variables) {
    if (variable.rows > kMostElements || variable.row_elements > kMostElements ||
        variable.elements() > kMostElements) {
      throw UsageError(str("variable ", variable.name, " of ", variable.rows, " x ", variable.row_elements,
                           " elements is larger than a server can hold"));
    }
  }
}

}  // namespace

std::uint64_t signature_of(const std::vector<VariableSpec>& variables) {
  std::uint64_t hash = 1469598103934665603ULL;  // FNV-1a
  const auto add = [&](std::string_view bytes) {
    for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  };
  for (const VariableSpec& v : variables)
    add(str(v.name, "\n", v.rows, " ", v.row_elements, " ", v.sparse ? 1 : 0, "\n"));
  return hash;
}

std::size_t ServerMemory::size_of(const std::vector<VariableSpec>& variables, const ServerOptions& options) {
  check(variables, options);
  Places places;
  take_parts(places, variables.size(), options.workers);
  for (int part = 0; part <= kMostSlots; ++part) places.take(record_elements(variables) * sizeof(float));
  places.take(bytes_of_names(variables));
  place_variables(places, variables, options.workers, [](auto&&...) {});
  return places.next;
}

ServerMemory ServerMemory::format(std::shared_ptr<SharedMemory> memory,
                                  const std::vector<VariableSpec>& variables, const ServerOptions& options) {
  check(variables, options);
  ServerMemory result(std::move(memory));
  Places places;
  const Parts parts = take_parts(places, variables.size(), options.workers);
  result.memory_->commit(0, places.next, "a server's tables");
  Header& header = result.header();
  header.options = options;
  header.variables = static_cast<std::uint32_t>(variables.size());
  header.ring = ring_of(variables.size());
  header.signature = signature_of(variables);
  for (std::uint64_t& record : header.record)
    record = places.take(record_elements(variables) * sizeof(float));
  header.names = places.take(bytes_of_names(variables));
  result.memory_->commit(header.record[0], places.next - header.record[0], "a server's record of updates");
  char* name = result.at<char>(header.names);
  for (const VariableSpec& variable : variables) {
    std::memcpy(name, variable.name.c_str(), variable.name.size() + 1);
    name += variable.name.size() + 1;
  }
  result.workers_ = parts.workers;
  result.rings_ = parts.rings;
  result.variables_ = parts.variables;
  place_variables(places, variables, options.workers,
                  [&](std::size_t v, std::size_t values, const std::size_t* slots, std::size_t changed,
                      std::size_t area, std::size_t area_bytes) {
                    VariableState& state = result.variable(v);
                    state.rows = variables[v].rows;
                    state.row_elements = variables[v].row_elements;
                    state.sparse = variables[v].sparse ? 1 : 0;
                    state.values = values;
                    std::copy_n(slots, kMostSlots, state.slots);
                    state.changed = changed;
                    state.area = area;
                    state.area_bytes = area_bytes;
                    result.memory_->commit(values, rounded(variables[v].elements() * sizeof(float)),
                                           str("variable ", variables[v].name));
                    if (changed != 0)
                      result.memory_->commit(changed, kChangedRows * 8, "the rows that changed");
                  });
  std::atomic_thread_fence(std::memory_order_release);
  header.magic = kMagic;  // last: memory without it is laid out again
  return result;
}

ServerMemory ServerMemory::open(std::shared_ptr<SharedMemory> memory) {
  ServerMemory result(std::move(memory));
  const std::size_t size = result.memory_->size();
  if (size < sizeof(Header) || result.header().magic != kMagic)
    throw DataError(str("memory of ", size, " bytes is not that of a server of this version"));
  result.find_parts();
  return result;
}

void ServerMemory::find_parts() {
  Places places;
  const Parts parts = take_parts(places, header().variables, header().options.workers);
  workers_ = parts.workers;
  rings_ = parts.rings;
  variables_ = parts.variables;
}

std::vector<VariableSpec> ServerMemory::specs() const {
  std::vector<VariableSpec> specs;
  const char* name = at<char>(header().names);
  for (std::size_t v = 0; v < variables(); ++v) {
    const VariableState& state = variable(v);
    specs.push_back({name, state.rows, state.row_elements, state.sparse != 0});
    name += specs.back().name.size() + 1;
  }
  return specs;
}

void ServerMemory::map_pages(std::size_t v, int slot) const {
  memory_->map_pages(slot < 0 ? variable(v).values : variable(v).slots[slot],
                     rounded(elements(v) * sizeof(float)));
}

void ServerMemory::commit_slots(std::size_t v, int slots) const {
  for (int slot = 0; slot < slots; ++slot)
    memory_->commit(variable(v).slots[slot], rounded(elements(v) * sizeof(float)), "an optimizer's state");
}

void ServerMemory::commit_area(std::size_t worker, std::size_t v, std::uint64_t rows) const {
  const VariableState& state = variable(v);
  const std::size_t begin = area_offset(worker, v);
  if (state.sparse != 0) memory_->commit(begin, std::max<std::size_t>(1, rows * 8), "rows' numbers");
  const std::size_t values = begin + (state.sparse != 0 ? state.rows * 8 : 0);
  memory_->commit(values, std::max<std::size_t>(1, rows * state.row_elements * sizeof(float)), "a gradient");
}

void ServerMemory::read(std::size_t v, std::size_t first, std::size_t count, float* to,
                        const Deadline& deadline) const {
  std::atomic<std::uint32_t>& version = variable(v).version;
  const float* const from = values(v);
  for (std::size_t done = 0; done < count;) {
    // Blocks are aligned with the server's blocks.
    const std::size_t begin = first + done;
    const std::size_t size = std::min(count - done, kBlockElements - begin % kBlockElements);
    for (int tries = 0;; ++tries) {
      const std::uint32_t before = version.load(std::memory_order_acquire);
      if (before % 2 == 0) {
        std::memcpy(to + done, from + begin, size * sizeof(float));
        std::atomic_thread_fence(std::memory_order_acquire);
        if (version.load(std::memory_order_relaxed) == before) break;
      }
      relax_processor();
      if (tries < kSpins) continue;
      // The server was killed while it wrote a block, which the next server will finish.
      if (deadline.passed())
        throw PeerLostError(str("a block of variable ", v, " stays half written: its server is gone"), {});
      std::this_thread::yield();
    }
    done += size;
  }
}

}  // namespace rondo::server
