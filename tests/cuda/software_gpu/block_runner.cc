#include "tests/cuda/software_gpu/block_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

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
  const dim3 size = kernel.block;
  lanes_.assign(size_t{size.x} * size.y * size.z, {});
  for (uint32_t i = 0; i < lanes_.size(); ++i) {
    lanes_[i].number = i;
    lanes_[i].thread = {i % size.x, i / size.x % size.y, i / size.x / size.y};
  }
  dynamic_.assign(kernel.shared_bytes, 0xff);
  shared_.SetDynamic(dynamic_.data(), dynamic_.size());
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
  std::fill(dynamic_.begin(), dynamic_.end(), 0xff);
  who_ = {.work = work_, .kernel_segment = work_->segment};
  who_.block_segment = who_.segment = work_->stream.NextSegment();
  starting_.clear();
  ready_.clear();
  in_warp_.assign((lanes_.size() + kWarp - 1) / kWarp, 0);
  at_barrier_ = returned_ = 0;
  for (Lane& lane : lanes_) {
    lane.state = Lane::kRunning;
    lane.warp_epoch = 0;
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
      Become(TakeStarting());
    }
    idle_.push_back(&fiber);
    GoOnFrom(fiber);
  }
}

void BlockRunner::Become(Lane* lane) {
  current_ = lane;
  who_.lane = lane->number;
  who_.warp_epoch = lane->warp_epoch;
}

// The fiber of the thread to run next. Null if there is none or the kernel must end.
testing::Fiber* BlockRunner::Next() {
  if (abandoned_) return nullptr;
  if (!ready_.empty() && (starting_.empty() || Random(2) == 0)) {
    Become(TakeReady());
    return current_->fiber;
  }
  if (starting_.empty()) return nullptr;
  Become(TakeStarting());
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

Lane* BlockRunner::TakeStarting() {
  std::swap(starting_[Random(starting_.size())], starting_.back());
  Lane* const lane = starting_.back();
  starting_.pop_back();
  return lane;
}

Lane* BlockRunner::TakeReady() {
  std::swap(ready_[Random(ready_.size())], ready_.back());
  Lane* const lane = ready_.back();
  ready_.pop_back();
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
  who_.warp_epoch = 0;
  for (Lane& lane : lanes_) {
    lane.warp_epoch = 0;
    Release(lane);
  }
}

void BlockRunner::Abandon(const std::string& what) {
  ReportViolation(fmt::format("{}: {}", DescribeThread(), what));
  Device::Get().Fail(cudaErrorLaunchFailure);
  abandoned_ = true;
}

std::string BlockRunner::DescribeThread() const {
  return fmt::format("thread {} of block {} of kernel {}", Show(current_->thread),
                     Show(block_index_), DescribeCode(kernel_->function));
}

void BlockRunner::ReportStuck() {
  const auto describe = [](const Lane& lane) {
    if (lane.state == Lane::kReturned) return std::string("has returned");
    const bool barrier = lane.state == Lane::kAtBarrier;
    return fmt::format("waits at the {} of {}:{}{}", barrier ? "__syncthreads" : "warp operation",
                       lane.where.file, lane.where.line,
                       barrier ? "" : fmt::format(" with the mask {:#x}", lane.mask));
  };
  const auto waits = [](const Lane& lane) { return lane.state != Lane::kReturned; };
  const Lane& waiting = *std::find_if(lanes_.begin(), lanes_.end(), waits);
  const auto other = std::find_if(lanes_.begin(), lanes_.end(),
                                  [&](const Lane& lane) { return lane.state != waiting.state; });
  ReportViolation(fmt::format(
      "kernel {}: {} of {} threads of block {} wait for others that never arrive: thread {} {}{}",
      DescribeCode(kernel_->function), std::count_if(lanes_.begin(), lanes_.end(), waits),
      lanes_.size(), Show(block_index_), Show(waiting.thread), describe(waiting),
      other == lanes_.end()
          ? ""
          : fmt::format(", thread {} {}", Show(other->thread), describe(*other))));
  Device::Get().Fail(cudaErrorLaunchFailure);
}

}  // namespace muster::software_gpu
