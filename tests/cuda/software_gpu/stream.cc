#include "tests/cuda/software_gpu/stream.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "tests/cuda/software_gpu/device.h"
#include "tests/cuda/software_gpu/random.h"
#include "tests/cuda/software_gpu/violation.h"

namespace muster::software_gpu {
namespace {

// In seconds. Longer than any program waits for a stream.
constexpr double kPatience = 60;
constexpr size_t kRememberedMarks = 100000;

}  // namespace

void Mark::Reach(const Clock& clock) {
  const std::lock_guard lock(mutex_);
  reached_ = true;
  clock_ = clock;
  changed_.notify_all();
}

bool Mark::Wait(double seconds) {
  std::unique_lock lock(mutex_);
  if (seconds <= 0) return reached_;  // avoids a system call when polled often
  return changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                           [this] { return reached_; });
}

bool Mark::Poll() {
  // Longer than most work takes, so that polling does not slow down the thread that does it.
  constexpr std::chrono::microseconds kMoment{200};
  std::unique_lock lock(mutex_);
  if (!std::exchange(was_polled_, true)) return reached_;
  return changed_.wait_for(lock, kMoment, [this] { return reached_; });
}

Stream::Stream(Device& device, int slot, uint64_t first_segment, uint64_t seed, int delay_us)
    : device_(device),
      slot_(slot),
      delay_us_(delay_us),
      random_(Mix(seed ^ (static_cast<uint64_t>(slot) << 32))),
      segment_(first_segment),
      thread_([this](const std::stop_token& stop) { Loop(stop); }) {}

Stream::~Stream() {
  thread_.request_stop();
  {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  }
  thread_.join();
}

void Stream::Push(Item item) {
  const std::lock_guard lock(mutex_);
  if (captured_) {
    captured_->push_back(std::move(item));
    return;
  }
  items_.push_back(std::move(item));
  changed_.notify_all();
}

void Stream::BeginCapture() {
  const std::lock_guard lock(mutex_);
  captured_.emplace();
}

std::vector<Stream::Item> Stream::EndCapture() {
  const std::lock_guard lock(mutex_);
  return *std::exchange(captured_, std::nullopt);
}

bool Stream::IsCapturing() {
  const std::lock_guard lock(mutex_);
  return captured_.has_value();
}

void Stream::Push(const Clock& known, const char* name, const void* kernel,
                  std::function<void(const Work&)> work) {
  Push({.known = known, .name = name, .kernel = kernel, .work = std::move(work)});
}

// If nothing is queued, marks are reached at once and the thread is not woken.
std::shared_ptr<Mark> Stream::PushMark(const Clock& known) {
  auto mark = std::make_shared<Mark>();
  {
    const std::lock_guard lock(mutex_);
    if (IsIdleNow()) {
      MergeInto(clock_, known);
      Reach(*mark);
      return mark;
    }
  }
  Push({.known = known, .reach = mark});
  return mark;
}

void Stream::PushWait(const Clock& known, std::shared_ptr<Mark> mark) {
  if (mark->IsReached()) {
    const std::lock_guard lock(mutex_);
    if (IsIdleNow()) {
      MergeInto(clock_, known);
      MergeInto(clock_, mark->clock());
      return;
    }
  }
  Push({.known = known, .wait = std::move(mark)});
}

bool Stream::IsIdle() {
  const std::lock_guard lock(mutex_);
  return IsIdleNow();
}

void Stream::Reach(Mark& mark) {
  clock_[static_cast<size_t>(slot_)] = segment_;
  mark.Reach(clock_);
}

void Stream::OpenMemory() {
  if (!std::exchange(memory_is_open_, true)) device_.memory().Open();
}

// Runs before the work is visibly done, so that a host that accesses device memory faults.
void Stream::CloseMemory() {
  if (std::exchange(memory_is_open_, false)) device_.memory().Close();
}

void Stream::Loop(std::stop_token stop) {
  for (;;) {
    std::deque<Item> taken;  // all at once, so that producers do not wait for this thread
    {
      std::unique_lock lock(mutex_);
      busy_ = false;
      changed_.wait(lock, [&] { return stop.stop_requested() || !items_.empty(); });
      if (items_.empty()) return;
      taken.swap(items_);
      busy_ = true;
    }
    while (!taken.empty()) {
      Item item = std::move(taken.front());  // destroyed before the next one starts
      taken.pop_front();
      Do(item);
    }
    CloseMemory();
  }
}

void Stream::Do(Item& item) {
  MergeInto(clock_, item.known);
  if (item.wait) {
    CloseMemory();
    if (!item.wait->Wait(kPatience))
      ReportViolation("a stream waits for an event that never occurs");
    MergeInto(clock_, item.wait->clock());
  } else if (item.reach) {
    CloseMemory();
    Reach(*item.reach);
  } else {
    if (item.kernel == nullptr) CloseMemory();
    device_.AwaitRelease();
    if (device_.failure() != cudaSuccess) return;
    Delay();
    const uint64_t segment = NextSegment();
    {
      const std::lock_guard lock(mutex_);
      past_.push_back({segment, item.name, item.kernel});
      if (past_.size() > kRememberedMarks) past_.pop_front();
    }
    item.work({.stream = *this,
               .name = item.name,
               .kernel = item.kernel,
               .clock = clock_,
               .slot = slot_,
               .segment = segment});
  }
}

void Stream::Delay() {
  random_ = Mix(random_);
  if (delay_us_ <= 0 || random_ % 4 != 0) return;
  CloseMemory();
  std::this_thread::sleep_for(
      std::chrono::microseconds((random_ >> 8) % static_cast<uint64_t>(delay_us_)));
}

std::string Stream::DescribeSegment(uint64_t segment) {
  Past found = {0, "work that ended long ago", nullptr};
  {
    const std::lock_guard lock(mutex_);
    for (auto past = past_.rbegin(); past != past_.rend(); ++past) {
      if (past->first_segment > segment) continue;
      found = *past;
      break;
    }
  }
  if (found.kernel == nullptr) return found.name;
  return fmt::format("kernel {}", DescribeCode(found.kernel));
}

}  // namespace muster::software_gpu
