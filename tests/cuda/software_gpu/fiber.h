// A stack of its own for a function that is left in its middle and gone on with later.
#pragma once

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace muster::software_gpu {

// Owner and thread: one thread, which resumes it.
class Fiber {
 public:
  // `body` never returns.
  explicit Fiber(std::function<void(Fiber&)> body);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Goes on with the body, or begins it, until it suspends itself.
  void Resume();
  // From the body: back to where it was resumed.
  void Suspend();
  // Forgets where the body was left: it begins anew. What it had on its stack is not destroyed.
  void Restart();

  bool HasOnStack(const void* address) const {
    const auto at = reinterpret_cast<uintptr_t>(address);
    return at - reinterpret_cast<uintptr_t>(stack_) < kBytes;
  }

 private:
  static constexpr size_t kBytes = 64 << 10;

  static void Enter(boost::context::detail::transfer_t from);

  const std::function<void(Fiber&)> body_;
  char* const stack_;
  size_t shift_ = 0;
  boost::context::detail::fcontext_t inside_ = nullptr;
  boost::context::detail::fcontext_t outside_ = nullptr;
  // AddressSanitizer's, which must know which stack is in use.
  void* fake_inside_ = nullptr;
  void* fake_outside_ = nullptr;
  const void* outside_stack_ = nullptr;
  size_t outside_bytes_ = 0;
};

}  // namespace muster::software_gpu
