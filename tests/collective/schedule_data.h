#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "rondo/base/text.h"
#include "rondo/collective/algorithms/registry.h"
#include "rondo/collective/executor.h"
#include "rondo/collective/reduction.h"

// Inputs and expected results of scheduled collectives, for tests over any channel.
namespace rondo::collective {

inline constexpr DType kAllDTypes[] = {DType::float32, DType::float64, DType::float16, DType::bfloat16,
                                       DType::int8,    DType::uint8,   DType::int16,   DType::int32,
                                       DType::int64,   DType::boolean};
inline constexpr Reduction kAllReductions[] = {
    Reduction::sum,     Reduction::average,     Reduction::product,    Reduction::minimum,
    Reduction::maximum, Reduction::bitwise_and, Reduction::bitwise_or, Reduction::bitwise_xor};

// Writes a small number in the representation of a type: 1 or 2, which every type and every order of
// additions keeps exact for up to eight ranks.
inline void put_number(DType type, int number, std::byte* at) {
  const auto put = [at](auto value) { std::memcpy(at, &value, sizeof(value)); };
  switch (type) {
    case DType::float32:
      return put(static_cast<float>(number));
    case DType::float64:
      return put(static_cast<double>(number));
    case DType::float16:
      return put(static_cast<std::uint16_t>(number == 1 ? 0x3c00 : 0x4000));
    case DType::bfloat16:
      return put(static_cast<std::uint16_t>(number == 1 ? 0x3f80 : 0x4000));
    case DType::boolean:
      return put(static_cast<std::uint8_t>(number - 1));
    case DType::int64:
      return put(static_cast<std::int64_t>(number));
    case DType::int32:
      return put(static_cast<std::int32_t>(number));
    case DType::int16:
      return put(static_cast<std::int16_t>(number));
    default:
      return put(static_cast<std::int8_t>(number));
  }
}

inline std::vector<std::byte> input_of(int rank, DType type, std::size_t elements) {
  const std::size_t unit = element_bytes(type);
  std::vector<std::byte> bytes(elements * unit);
  for (std::size_t i = 0; i < elements; ++i) {
    put_number(type, 1 + static_cast<int>((i * 5 + i / 3 + static_cast<std::size_t>(rank) * 3) % 7 % 2),
               bytes.data() + i * unit);
  }
  return bytes;
}

// Runs a collective on this channel; returns the error of this rank's result, or an empty string.
inline std::string run_and_compare(Channel& channel, const std::string& algorithm, OperationKind operation,
                                   DType type, Reduction reduction, std::size_t elements, const Wait& wait) {
  ScheduleRequest request;
  request.operation = operation;
  request.rank = channel.rank();
  request.world = channel.size();
  request.element_bytes = element_bytes(type);
  request.bytes = {elements * request.element_bytes};
  request.root = request.world / 2;
  for (int rank = 0; rank < request.world; ++rank) request.hosts.push_back(rank % 2);

  std::vector<std::byte> data = input_of(request.rank, type, elements);
  execute(make_schedule(algorithm, request), channel, data, type, reduction, wait);

  std::vector<std::vector<std::byte>> inputs;
  std::vector<const std::byte*> sources;
  for (int rank = 0; rank < request.world; ++rank) inputs.push_back(input_of(rank, type, elements));
  for (const auto& input : inputs) sources.push_back(input.data());
  std::vector<std::byte> expected(data.size());
  std::byte* target = expected.data();
  Range checked{Buffer::data, 0, request.bytes.count};
  switch (operation) {
    case OperationKind::broadcast:
      expected = inputs[static_cast<std::size_t>(request.root)];
      break;
    case OperationKind::all_gather:
      for (int rank = 0; rank < request.world; ++rank) {
        const Range part = part_of(request, rank);
        std::copy_n(sources[static_cast<std::size_t>(rank)] + part.offset, part.bytes, target + part.offset);
      }
      break;
    default: {
      ReductionTask task;
      task.type = type;
      task.reduction = reduction;
      task.sources = sources;
      task.destinations = {&target, 1};
      task.elements = elements;
      reduce(task);
      if (operation == OperationKind::reduce && request.rank != request.root) checked.bytes = 0;
      if (operation == OperationKind::reduce_scatter) checked = part_of(request, request.rank);
    }
  }
  const bool right = std::equal(target + checked.offset, target + checked.offset + checked.bytes,
                                data.data() + checked.offset);
  return right ? ""
               : str(algorithm, " ", rondo::name(operation), " ", rondo::name(reduction), " of ", elements,
                     " ", rondo::name(type), " is wrong on rank ", request.rank, " of ", request.world);
}

}  // namespace rondo::collective
