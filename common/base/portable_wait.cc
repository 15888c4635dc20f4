// Takes the place of std::condition_variable::wait (cmake/Portable.cmake).
#include <pthread.h>

#include <condition_variable>
#include <cstdlib>
#include <mutex>

// The linker's option --wrap gives this name.
extern "C" __attribute__((visibility("hidden"))) void
__wrap__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(
    std::condition_variable* condition, std::unique_lock<std::mutex>* lock) {
  if (pthread_cond_wait(condition->native_handle(), lock->mutex()->native_handle()) != 0) {
    std::abort();  // the lock is not held
  }
}
