#include "tests/cuda/software_gpu/fiber.h"

#include <sys/mman.h>

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include "common/base/error.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace muster::software_gpu {
namespace {

constexpr size_t kGuard = 4096;  // faults where a stack overflows

void Leave([[maybe_unused]] void** fake, [[maybe_unused]] const void* to,
           [[maybe_unused]] size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(fake, to, bytes);
#endif
}

void Arrive([[maybe_unused]] void* fake, [[maybe_unused]] const void** from,
            [[maybe_unused]] size_t* bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake, from, bytes);
#endif
}

// Stacks that nobody uses: a stream's thread leaves its own to the next one's. Never destroyed:
// threads may end later than anything else.
struct Stacks {
  std::mutex mutex;
  std::vector<char*> idle;
};
Stacks& IdleStacks() {
  static auto* const stacks = new Stacks;
  return *stacks;
}

char* TakeStack(size_t bytes) {
  {
    Stacks& stacks = IdleStacks();
    const std::lock_guard lock(stacks.mutex);
    if (!stacks.idle.empty()) {
      char* const taken = stacks.idle.back();
      stacks.idle.pop_back();
      return taken;
    }
  }
  void* const at = mmap(nullptr, kGuard + bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  MUSTER_CHECK(at != MAP_FAILED && mprotect(at, kGuard, PROT_NONE) == 0);
  return static_cast<char*>(at) + kGuard;
}

void LeaveStack(char* stack) {
  Stacks& stacks = IdleStacks();
  const std::lock_guard lock(stacks.mutex);
  stacks.idle.push_back(stack);
}

}  // namespace

Fiber::Fiber(std::function<void(Fiber&)> body) : body_(std::move(body)), stack_(TakeStack(kBytes)) {
  // Stacks that all began at the same offset in a page would share a few lines of the cache.
  static std::atomic<size_t> count = 0;
  shift_ = ++count % 16 * 256;
  Restart();
}

Fiber::~Fiber() {
#if defined(__SANITIZE_ADDRESS__)
  // The body never returned from its frames; whoever is given these addresses next would find their
  // marks.
  __asan_unpoison_memory_region(stack_, kBytes);
#endif
  LeaveStack(stack_);
}

void Fiber::Restart() {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(stack_, kBytes);
#endif
  fake_inside_ = nullptr;
  inside_ = boost::context::detail::make_fcontext(stack_ + kBytes - shift_, kBytes - shift_, Enter);
}

void Fiber::Enter(boost::context::detail::transfer_t from) {
  auto& fiber = *static_cast<Fiber*>(from.data);
  fiber.outside_ = from.fctx;
  Arrive(nullptr, &fiber.outside_stack_, &fiber.outside_bytes_);
  fiber.body_(fiber);
  MUSTER_CHECK(!"the body of a fiber returned");
}

void Fiber::Resume() {
  Leave(&fake_outside_, stack_, kBytes);
  inside_ = boost::context::detail::jump_fcontext(inside_, this).fctx;
  Arrive(fake_outside_, nullptr, nullptr);
}

void Fiber::Suspend() {
  Leave(&fake_inside_, outside_stack_, outside_bytes_);
  outside_ = boost::context::detail::jump_fcontext(outside_, nullptr).fctx;
  Arrive(fake_inside_, &outside_stack_, &outside_bytes_);
}

}  // namespace muster::software_gpu
