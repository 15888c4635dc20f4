// Functions that g++ calls before each memory access in sources compiled with -fsanitize=thread,
// and for invalid indices or addresses with -fsanitize=bounds,alignment. Names and arguments are
// those of the sanitizers, but here they check kernels, and libtsan is not linked. In a build with
// UndefinedBehaviorSanitizer two of them replace the library's for the whole program, and are no
// less strict.
#include <fmt/format.h>

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
void __tsan_vptr_update(void**, void*) {}

#define MUSTER_ACCESS(BYTES)                                           \
  void __tsan_read##BYTES(void* at) {                                  \
    Touch(at, BYTES, AccessKind::kRead, __builtin_return_address(0));  \
  }                                                                    \
  void __tsan_write##BYTES(void* at) {                                 \
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

// The counts of shared pointers, in host code of the same sources.
int __tsan_atomic32_fetch_add(volatile int* at, int value, int) {
  return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST);
}
int __tsan_atomic32_fetch_sub(volatile int* at, int value, int) {
  return __atomic_fetch_sub(at, value, __ATOMIC_SEQ_CST);
}

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
