// A function with a stack of its own, which can be suspended and resumed.
#pragma once

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace muster::testing {

// Where a thread was when it resumed a fiber. One per thread. Must outlive its fibers.
struct OutsideFibers {
  boost::context::detail::fcontext_t context = nullptr;
  // For AddressSanitizer, which must know the current stack.
  void* fake = nullptr;
  const void* stack = nullptr;
  size_t bytes = 0;
};

// Owned and resumed by one thread.
class Fiber {
 public:
  // `body` must never return.
  Fiber(OutsideFibers& outside, std::function<void(Fiber&)> body, size_t stack_bytes = 64 << 10);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Starts or resumes the body. Returns when it, or a fiber that it switched to, suspends itself.
  void Resume();
  // Called by the body: returns to the caller of Resume().
  void Suspend();
  // Called by the body: switches to another fiber, as if Resume() had been called on that.
  void SwitchTo(Fiber& next);
  // Makes the next Resume() start the body again. Objects on its stack are not destroyed.
  void Restart();

  bool HasOnStack(const void* address) const {
    const auto at = reinterpret_cast<uintptr_t>(address);
    return at - reinterpret_cast<uintptr_t>(stack_) < bytes_;
  }

 private:
  static void Enter(boost::context::detail::transfer_t from);
  void Arrive(boost::context::detail::transfer_t from);

  OutsideFibers& outside_;
  const std::function<void(Fiber&)> body_;
  const size_t bytes_;
  char* const stack_;
  size_t shift_ = 0;
  boost::context::detail::fcontext_t inside_ = nullptr;
  void* fake_ = nullptr;  // as in OutsideFibers
};

}  // namespace muster::testing
