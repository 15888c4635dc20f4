// Functions that g++ calls before each memory access in sources compiled with -fsanitize=thread,
// and for invalid indices or addresses with -fsanitize=bounds,alignment. Names and arguments are
// those of the sanitizers, but here they check kernels, and libtsan is not linked. In a build with
// UndefinedBehaviorSanitizer two of them replace the library's for the whole program, and are no
// less strict.
#include <fmt/format.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tests/cuda/software_gpu/block_runner.h"
#include "tests/cuda/software_gpu/device.h"
#include "tests/cuda/software_gpu/violation.h"

namespace {

using muster::software_gpu::AccessKind;
using muster::software_gpu::BlockRunner;

inline void Touch(const void* address, size_t bytes, AccessKind kind, const void* code) {
  // Not in a kernel: host code in the same source. Its accesses to device memory fault anyway.
  BlockRunner* const runner = BlockRunner::Current();
  if (runner == nullptr) return;
  runner->Touch(address, bytes, kind, code);
  runner->Leave();
}

}  // namespace

// NOLINTBEGIN: names that are given
extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

#define MUSTER_ACCESS(BYTES)                                           \
  void __tsan_read##BYTES(void* at) {                                  \
    Touch(at, BYTES, AccessKind::kRead, __builtin_return_address(0));  \
  }                                                                    \
  void __tsan_write##BYTES(void* at) {                                 \
    Touch(at, BYTES, AccessKind::kWrite, __builtin_return_address(0)); \
  }                                                                    \
  void __tsan_volatile_read##BYTES(void* at) {                         \
    Touch(at, BYTES, AccessKind::kRead, __builtin_return_address(0));  \
  }                                                                    \
  void __tsan_volatile_write##BYTES(void* at) {                        \
    Touch(at, BYTES, AccessKind::kWrite, __builtin_return_address(0)); \
  }                                                                    \
  void __tsan_unaligned_read##BYTES(void* at) {                        \
    Touch(at, BYTES, AccessKind::kRead, __builtin_return_address(0));  \
  }                                                                    \
  void __tsan_unaligned_write##BYTES(void* at) {                       \
    Touch(at, BYTES, AccessKind::kWrite, __builtin_return_address(0)); \
  }
MUSTER_ACCESS(1)
MUSTER_ACCESS(2)
MUSTER_ACCESS(4)
MUSTER_ACCESS(8)
MUSTER_ACCESS(16)
#undef MUSTER_ACCESS

void __tsan_read_range(void* at, size_t bytes) {
  Touch(at, bytes, AccessKind::kRead, __builtin_return_address(0));
}
void __tsan_write_range(void* at, size_t bytes) {
  Touch(at, bytes, AccessKind::kWrite, __builtin_return_address(0));
}

// Plain atomics for host code in the same sources.
#define MUSTER_FETCH(BITS, TYPE, NAME)                                          \
  TYPE __tsan_atomic##BITS##_fetch_##NAME(volatile TYPE* at, TYPE value, int) { \
    return __atomic_fetch_##NAME(at, value, __ATOMIC_SEQ_CST);                  \
  }
#define MUSTER_ATOMIC(BITS, TYPE)                                                                 \
  TYPE __tsan_atomic##BITS##_load(const volatile TYPE* at, int) {                                 \
    return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                                 \
  }                                                                                               \
  void __tsan_atomic##BITS##_store(volatile TYPE* at, TYPE value, int) {                          \
    __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                                                \
  }                                                                                               \
  TYPE __tsan_atomic##BITS##_exchange(volatile TYPE* at, TYPE value, int) {                       \
    return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);                                      \
  }                                                                                               \
  MUSTER_FETCH(BITS, TYPE, add)                                                                   \
  MUSTER_FETCH(BITS, TYPE, sub)                                                                   \
  MUSTER_FETCH(BITS, TYPE, and)                                                                   \
  MUSTER_FETCH(BITS, TYPE, or)                                                                    \
  MUSTER_FETCH(BITS, TYPE, xor)                                                                   \
  bool __tsan_atomic##BITS##_compare_exchange_strong(volatile TYPE* at, TYPE* expected,           \
                                                     TYPE value, int, int) {                      \
    return __atomic_compare_exchange_n(at, expected, value, false, __ATOMIC_SEQ_CST,              \
                                       __ATOMIC_SEQ_CST);                                         \
  }                                                                                               \
  bool __tsan_atomic##BITS##_compare_exchange_weak(volatile TYPE* at, TYPE* expected, TYPE value, \
                                                   int, int) {                                    \
    return __atomic_compare_exchange_n(at, expected, value, true, __ATOMIC_SEQ_CST,               \
                                       __ATOMIC_SEQ_CST);                                         \
  }
MUSTER_ATOMIC(8, uint8_t)
MUSTER_ATOMIC(16, uint16_t)
MUSTER_ATOMIC(32, uint32_t)
MUSTER_ATOMIC(64, uint64_t)
#undef MUSTER_ATOMIC
#undef MUSTER_FETCH

void __tsan_atomic_thread_fence(int) { std::atomic_thread_fence(std::memory_order_seq_cst); }
void __tsan_atomic_signal_fence(int) { std::atomic_signal_fence(std::memory_order_seq_cst); }

struct SanitizerPlace {
  const char* file;
  uint32_t line;
  uint32_t column;
};

struct SanitizerMismatch {
  SanitizerPlace place;
  const void* type;
  unsigned char log_alignment;
  unsigned char kind;
};

struct SanitizerBounds {
  SanitizerPlace place;
  const void* array;
  const void* index;
};

static void Report(const SanitizerPlace& place, const std::string& what) {
  const std::string text = fmt::format("{}:{}: {}", place.file, place.line, what);
  BlockRunner* const runner = BlockRunner::Current();
  if (runner != nullptr) return runner->Abandon(text);
  muster::software_gpu::ReportViolation(text);
}

static void LeaveKernel() {
  BlockRunner* const runner = BlockRunner::Current();
  if (runner != nullptr) runner->Leave();
}

void __ubsan_handle_type_mismatch_v1(const SanitizerMismatch* mismatch, uintptr_t address) {
  const uintptr_t alignment = uintptr_t{1} << mismatch->log_alignment;
  if (address % alignment == 0) return;  // null, which faults anyway
  Report(mismatch->place,
         fmt::format("the address {:#x} is not a multiple of {}, as its type requires", address,
                     alignment));
  LeaveKernel();
}

void __ubsan_handle_out_of_bounds(const SanitizerBounds* bounds, uintptr_t index) {
  Report(bounds->place, fmt::format("index {} is outside of the array", index));
  LeaveKernel();
}
}
// NOLINTEND
