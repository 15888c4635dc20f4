#include "tests/cuda/software_gpu/block_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "common/base/error.h"
#include "tests/cuda/software_gpu/device.h"
#include "tests/cuda/software_gpu/random.h"
#include "tests/cuda/software_gpu/violation.h"

namespace muster::software_gpu {
namespace {

std::string Show(uint3 index) { return fmt::format("({}, {}, {})", index.x, index.y, index.z); }

}  // namespace

thread_local constinit BlockRunner* BlockRunner::of_thread_ = nullptr;

uint32_t BlockRunner::Random(size_t below) {
  random_ = Mix(random_);
  return static_cast<uint32_t>((random_ >> 32) * below >> 32);
}

void BlockRunner::Run(const Kernel& kernel, const Work& work) {
  kernel_ = &kernel;
  work_ = &work;
  abandoned_ = false;
  lanes_.assign(kernel.block.x, {});
  for (uint32_t i = 0; i < lanes_.size(); ++i) lanes_[i].number = i;
  of_thread_ = this;
  // All blocks, with a stride that is coprime to their number.
  const dim3 grid = kernel.grid;
  const uint64_t blocks = uint64_t{grid.x} * grid.y * grid.z;
  uint64_t step = 1 + Random(blocks);
  while (std::gcd(step, blocks) != 1) ++step;
  uint64_t block = Random(blocks);
  for (uint64_t i = 0; i < blocks && !abandoned_; ++i) {
    block_index_ = {static_cast<uint32_t>(block % grid.x),
                    static_cast<uint32_t>(block / grid.x % grid.y),
                    static_cast<uint32_t>(block / grid.x / grid.y)};
    if (!RunBlock()) break;
    block = (block + step) % blocks;
  }
  of_thread_ = nullptr;
}

bool BlockRunner::RunBlock() {
  who_ = {.work = work_, .kernel_segment = work_->segment};
  who_.block_segment = who_.segment = work_->stream.NextSegment();
  starting_.clear();
  ready_.clear();
  in_warp_.assign(lanes_.size() / kWarp, 0);
  at_barrier_ = returned_ = 0;
  for (Lane& lane : lanes_) {
    lane.state = Lane::kRunning;
    starting_.push_back(&lane);
  }
  while (testing::Fiber* const fiber = Next()) fiber->Resume();
  if (!abandoned_ && returned_ == lanes_.size()) return true;
  if (!abandoned_) ReportStuck();
  abandoned_ = true;
  idle_.clear();
  for (const auto& fiber : fibers_) {
    fiber->Restart();
    idle_.push_back(fiber.get());
  }
  return false;
}

// Runs one thread after another as long as none waits.
void BlockRunner::Body(testing::Fiber& fiber) {
  for (;;) {
    for (;;) {
      current_->fiber = &fiber;
      kernel_->invoke(kernel_->arguments.get());
      current_->state = Lane::kReturned;
      ++returned_;
      if (starting_.empty() || (!ready_.empty() && Random(2) == 0)) break;
      Become(TakeAny(starting_));
    }
    idle_.push_back(&fiber);
    GoOnFrom(fiber);
  }
}

void BlockRunner::Become(Lane* lane) {
  current_ = lane;
  who_.lane = lane->number;
}

// The fiber of the thread to run next. Null if there is none or the kernel must end.
testing::Fiber* BlockRunner::Next() {
  if (abandoned_) return nullptr;
  if (!ready_.empty() && (starting_.empty() || Random(2) == 0)) {
    Become(TakeAny(ready_));
    return current_->fiber;
  }
  if (starting_.empty()) return nullptr;
  Become(TakeAny(starting_));
  return IdleFiber();
}

// Resumes a fiber that waits for its turn.
void BlockRunner::GoOnFrom(testing::Fiber& fiber) {
  testing::Fiber* const next = Next();
  if (next == nullptr) {
    fiber.Suspend();
  } else if (next != &fiber) {
    fiber.SwitchTo(*next);
  }
}

Lane* BlockRunner::TakeAny(std::vector<Lane*>& lanes) {
  std::swap(lanes[Random(lanes.size())], lanes.back());
  Lane* const lane = lanes.back();
  lanes.pop_back();
  return lane;
}

testing::Fiber* BlockRunner::IdleFiber() {
  if (idle_.empty()) {
    fibers_.push_back(
        std::make_unique<testing::Fiber>(outside_, [this](testing::Fiber& fiber) { Body(fiber); }));
    return fibers_.back().get();
  }
  testing::Fiber* const fiber = idle_.back();
  idle_.pop_back();
  return fiber;
}

void BlockRunner::Wait() { GoOnFrom(*current_->fiber); }

void BlockRunner::Release(Lane& lane) {
  lane.state = Lane::kRunning;
  if (&lane != current_) ready_.push_back(&lane);
}

void BlockRunner::SyncThreads(Where where) {
  current_->state = Lane::kAtBarrier;
  current_->where = where;
  if (++at_barrier_ < lanes_.size()) {
    Wait();
    return;
  }
  for (const Lane& lane : lanes_) {
    if (lane.where == where) continue;
    Abandon(fmt::format("some threads are at the __syncthreads of {}:{}, others at that of {}:{}",
                        where.file, where.line, lane.where.file, lane.where.line));
    return;
  }
  at_barrier_ = 0;
  who_.segment = work_->stream.NextSegment();
  for (Lane& lane : lanes_) Release(lane);
}

// Whole warps only: the backend has no other shuffles.
void BlockRunner::ShuffleXor(uint32_t mask, void* value, size_t bytes, uint32_t bits, Where where) {
  Lane& lane = *current_;
  MUSTER_CHECK(bytes <= sizeof(lane.value));
  if (mask != 0xffffffff || bits >= kWarp) {
    return Abandon(
        fmt::format("the shuffle of {}:{} with the mask {:#x} and {}: expected a mask of "
                    "32 threads, and less than 32",
                    where.file, where.line, mask, bits));
  }
  lane.state = Lane::kInWarp;
  lane.where = where;
  lane.bits = bits;
  lane.bytes = bytes;
  std::memcpy(lane.value, value, bytes);
  const uint32_t warp = lane.number / kWarp;
  if (++in_warp_[warp] < kWarp) {
    Wait();
  } else {
    in_warp_[warp] = 0;
    CompleteWarp(std::span(lanes_).subspan(size_t{warp} * kWarp, kWarp));
  }
  std::memcpy(value, lane.result, bytes);
}

void BlockRunner::CompleteWarp(std::span<Lane> lanes) {
  for (Lane& lane : lanes) {
    const Lane& last = *current_;
    if (lane.where != last.where || lane.bits != last.bits || lane.bytes != last.bytes) {
      return Abandon(fmt::format("threads of one warp are at different shuffles: {}:{} and {}:{}",
                                 last.where.file, last.where.line, lane.where.file,
                                 lane.where.line));
    }
    std::memcpy(lane.result, lanes[lane.number % kWarp ^ lane.bits].value, lane.bytes);
  }
  for (Lane& lane : lanes) Release(lane);
}

void BlockRunner::Abandon(const std::string& what) {
  ReportViolation(fmt::format("{}: {}", DescribeThread(), what));
  Device::Get().Fail(cudaErrorLaunchFailure);
  abandoned_ = true;
}

std::string BlockRunner::DescribeThread() const {
  return fmt::format("thread {} of block {} of kernel {}", current_->number, Show(block_index_),
                     DescribeCode(kernel_->function));
}

void BlockRunner::ReportStuck() {
  const auto describe = [](const Lane& lane) {
    if (lane.state == Lane::kReturned) return std::string("has returned");
    return fmt::format("waits at the {} of {}:{}",
                       lane.state == Lane::kAtBarrier ? "__syncthreads" : "shuffle",
                       lane.where.file, lane.where.line);
  };
  const auto waits = [](const Lane& lane) { return lane.state != Lane::kReturned; };
  const Lane& waiting = *std::find_if(lanes_.begin(), lanes_.end(), waits);
  const auto other = std::find_if(lanes_.begin(), lanes_.end(),
                                  [&](const Lane& lane) { return lane.state != waiting.state; });
  ReportViolation(fmt::format(
      "kernel {}: {} of {} threads of block {} wait for others that never arrive: thread {} {}{}",
      DescribeCode(kernel_->function), std::count_if(lanes_.begin(), lanes_.end(), waits),
      lanes_.size(), Show(block_index_), waiting.number, describe(waiting),
      other == lanes_.end() ? "" : fmt::format(", thread {} {}", other->number, describe(*other))));
  Device::Get().Fail(cudaErrorLaunchFailure);
}

}  // namespace muster::software_gpu
