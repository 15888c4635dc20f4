// A stack of its own for a function that is left in its middle and gone on with later.
#pragma once

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace muster::testing {

// Where a thread was when it resumed a fiber. One for all fibers of the thread, which must outlive
// them.
struct OutsideFibers {
  boost::context::detail::fcontext_t context = nullptr;
  // AddressSanitizer's, which must know which stack is in use.
  void* fake = nullptr;
  const void* stack = nullptr;
  size_t bytes = 0;
};

// Owner and thread: one thread, which resumes it.
class Fiber {
 public:
  // `body` never returns.
  Fiber(OutsideFibers& outside, std::function<void(Fiber&)> body, size_t stack_bytes = 64 << 10);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Goes on with the body, or begins it, until it, or another one that it switched to, suspends
  // itself.
  void Resume();
  // From the body: back to where the first was resumed.
  void Suspend();
  // From the body: to another one, as if that had been resumed.
  void SwitchTo(Fiber& next);
  // Forgets where the body was left: it begins anew. What it had on its stack is not destroyed.
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
  void* fake_ = nullptr;  // as that of OutsideFibers
};

}  // namespace muster::testing
