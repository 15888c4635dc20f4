// Memory that goes from one thread to another inside of a library that is built without
// ThreadSanitizer, such as libzmq: these two tell it that what happened before the one happens
// before what follows the other. Nothing in other builds.
#pragma once

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace muster {

inline void BeforeHandOver([[maybe_unused]] void* address) {
#ifdef __SANITIZE_THREAD__
  __tsan_release(address);
#endif
}

inline void AfterHandOver([[maybe_unused]] void* address) {
#ifdef __SANITIZE_THREAD__
  __tsan_acquire(address);
#endif
}

}  // namespace muster
