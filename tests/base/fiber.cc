#include "tests/base/fiber.h"

#include <sys/mman.h>

#include <atomic>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "common/base/error.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace muster::testing {
namespace {

constexpr size_t kGuard = 4096;  // faults if a stack overflows

using boost::context::detail::fcontext_t;
using boost::context::detail::transfer_t;

// AddressSanitizer is notified before and after each change of the stack.
void TellBefore([[maybe_unused]] void** fake, [[maybe_unused]] const void* to,
                [[maybe_unused]] size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(fake, to, bytes);
#endif
}

void TellAfter([[maybe_unused]] void* fake, [[maybe_unused]] const void** from,
               [[maybe_unused]] size_t* bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake, from, bytes);
#endif
}

// Passed from the fiber that is left to the one that resumes.
struct Passed {
  fcontext_t* left;  // the context that was left
  Fiber* to;         // null: outside of fibers
};

transfer_t Jump(fcontext_t* left, fcontext_t to, Fiber* fiber) {
  Passed passed = {left, fiber};
  return boost::context::detail::jump_fcontext(to, &passed);
}

// Stores the context of the fiber that was left.
fcontext_t* Keep(const transfer_t& from) {
  const Passed& passed = *static_cast<const Passed*>(from.data);
  *passed.left = from.fctx;
  return passed.left;
}

// Unused stacks by size, to be reused by later threads. Never destroyed, because threads may end
// later than anything else.
struct Stacks {
  std::mutex mutex;
  std::map<size_t, std::vector<char*>> idle;
};
Stacks& IdleStacks() {
  static auto* const stacks = new Stacks;
  return *stacks;
}

char* TakeStack(size_t bytes) {
  {
    Stacks& stacks = IdleStacks();
    const std::lock_guard lock(stacks.mutex);
    std::vector<char*>& idle = stacks.idle[bytes];
    if (!idle.empty()) {
      char* const taken = idle.back();
      idle.pop_back();
      return taken;
    }
  }
  void* const at = mmap(nullptr, kGuard + bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  MUSTER_CHECK(at != MAP_FAILED && mprotect(at, kGuard, PROT_NONE) == 0);
  return static_cast<char*>(at) + kGuard;
}

void LeaveStack(char* stack, size_t bytes) {
  Stacks& stacks = IdleStacks();
  const std::lock_guard lock(stacks.mutex);
  stacks.idle[bytes].push_back(stack);
}

}  // namespace

Fiber::Fiber(OutsideFibers& outside, std::function<void(Fiber&)> body, size_t stack_bytes)
    : outside_(outside),
      body_(std::move(body)),
      bytes_(stack_bytes),
      stack_(TakeStack(stack_bytes)) {
  // Stacks at the same offset within pages would share a few cache lines.
  static std::atomic<size_t> count = 0;
  shift_ = ++count % 16 * 256;
  Restart();
}

Fiber::~Fiber() {
#if defined(__SANITIZE_ADDRESS__)
  // The body never returned from its frames. The next user of these addresses would find their
  // marks.
  __asan_unpoison_memory_region(stack_, bytes_);
#endif
  LeaveStack(stack_, bytes_);
}

void Fiber::Restart() {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(stack_, bytes_);
#endif
  fake_ = nullptr;
  inside_ = boost::context::detail::make_fcontext(stack_ + bytes_ - shift_, bytes_ - shift_, Enter);
}

void Fiber::Enter(transfer_t from) {
  Fiber& fiber = *static_cast<const Passed*>(from.data)->to;
  fiber.Arrive(from);
  fiber.body_(fiber);
  MUSTER_CHECK(!"the body of a fiber returned");
}

void Fiber::Arrive(transfer_t from) {
  const bool from_outside = Keep(from) == &outside_.context;
  const void* stack = nullptr;
  size_t bytes = 0;
  TellAfter(fake_, &stack, &bytes);
  if (!from_outside) return;
  outside_.stack = stack;
  outside_.bytes = bytes;
}

void Fiber::Resume() {
  TellBefore(&outside_.fake, stack_, bytes_);
  Keep(Jump(&outside_.context, inside_, this));
  TellAfter(outside_.fake, nullptr, nullptr);
}

void Fiber::Suspend() {
  TellBefore(&fake_, outside_.stack, outside_.bytes);
  Arrive(Jump(&inside_, outside_.context, nullptr));
}

void Fiber::SwitchTo(Fiber& next) {
  TellBefore(&fake_, next.stack_, next.bytes_);
  Arrive(Jump(&inside_, next.inside_, &next));
}

}  // namespace muster::testing
