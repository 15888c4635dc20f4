// Collective operations of a warp.
#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "common/base/error.h"
#include "tests/cuda/software_gpu/block_runner.h"

namespace muster::software_gpu {
namespace {

// The lane that this one reads, or its own where CUDA says that the value is unchanged.
uint32_t SourceLane(const Lane& lane) {
  const uint32_t own = lane.number % kWarp;
  const uint32_t segment = own / lane.width * lane.width;
  const uint32_t end = segment + lane.width;
  switch (lane.operation) {
    case WarpOperation::kIndex:
      return segment + lane.operand % lane.width;
    case WarpOperation::kDown:
      return own + lane.operand < end ? own + lane.operand : own;
    case WarpOperation::kUp:
      return own >= segment + lane.operand ? own - lane.operand : own;
    case WarpOperation::kXor:
      return (own ^ lane.operand) < end ? own ^ lane.operand : own;
    case WarpOperation::kBallot:
    case WarpOperation::kSync:
      break;
  }
  return own;
}

}  // namespace

void BlockRunner::WarpTogether(WarpOperation operation, uint32_t mask, void* value, size_t bytes,
                               uint32_t operand, uint32_t width, Where where) {
  Lane& lane = *current_;
  MUSTER_CHECK(bytes <= sizeof(lane.value));
  const uint32_t first = lane.number / kWarp * kWarp;
  const size_t there = lanes_.size() - first;
  const auto refuse = [&](const std::string& what) {
    Abandon(fmt::format("the warp operation of {}:{}: {}", where.file, where.line, what));
  };
  if ((mask >> (lane.number % kWarp) & 1) == 0) {
    return refuse(fmt::format("the mask {:#x} does not include this thread", mask));
  }
  if (there < kWarp && mask >> there != 0) {
    return refuse(fmt::format("the mask {:#x} includes threads beyond the {} of the block", mask,
                              lanes_.size()));
  }
  if (!std::has_single_bit(width) || width > kWarp) {
    return refuse(fmt::format("a width of {}", width));
  }
  lane.state = Lane::kInWarp;
  lane.operation = operation;
  lane.mask = mask;
  lane.operand = operand;
  lane.width = width;
  lane.bytes = bytes;
  lane.where = where;
  if (bytes > 0) std::memcpy(lane.value, value, bytes);
  uint32_t& waiting = in_warp_[lane.number / kWarp];
  waiting |= 1u << lane.number % kWarp;
  if ((waiting & mask) == mask) {
    CompleteWarp(first, mask);
    waiting &= ~mask;
  } else {
    Wait();
  }
  if (bytes > 0) std::memcpy(value, lane.result, bytes);
}

void BlockRunner::CompleteWarp(uint32_t first, uint32_t mask) {
  const Lane& last = *current_;
  uint32_t ballot = 0;
  for (uint32_t i = 0; i < kWarp; ++i) {
    if ((mask >> i & 1) == 0) continue;
    const Lane& lane = lanes_[first + i];
    if (lane.where != last.where || lane.mask != mask || lane.operation != last.operation ||
        lane.bytes != last.bytes) {
      Abandon(fmt::format(
          "threads of one warp are at different warp operations: {}:{} with the mask {:#x}, and "
          "{}:{} with {:#x}",
          last.where.file, last.where.line, mask, lane.where.file, lane.where.line, lane.mask));
      return;
    }
    ballot |= static_cast<uint32_t>(lane.value[0] != 0) << i;
  }
  for (uint32_t i = 0; i < kWarp; ++i) {
    if ((mask >> i & 1) == 0) continue;
    Lane& lane = lanes_[first + i];
    if (lane.operation == WarpOperation::kBallot) {
      std::memcpy(lane.result, &ballot, sizeof(ballot));
    } else if (lane.bytes > 0) {
      const uint32_t source = SourceLane(lane);
      if ((mask >> source & 1) == 0) {
        Abandon(fmt::format("the shuffle of {}:{} reads lane {}, which is not in the mask {:#x}",
                            last.where.file, last.where.line, source, mask));
        return;
      }
      std::memcpy(lane.result, lanes_[first + source].value, lane.bytes);
    }
    if (lane.operation == WarpOperation::kSync) ++lane.warp_epoch;
    Release(lane);
  }
  who_.warp_epoch = last.warp_epoch;
}

}  // namespace muster::software_gpu
