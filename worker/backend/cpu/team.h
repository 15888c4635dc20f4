// The OpenMP parallel regions of this backend. They are all in this file because libgomp is built
// without ThreadSanitizer, which must be informed that a region ends before its caller continues.
#pragma once

#include <omp.h>

#include <cstdint>

#include "common/base/memory.h"

namespace muster::cpu {

namespace internal {
inline char end_of_region;
}  // namespace internal

// Calls body(thread) in each of `threads` threads; thread 0 is the caller.
template <typename Body>
void InTeam(int threads, const Body& body) {
#pragma omp parallel num_threads(threads)
  {
    body(omp_get_thread_num());
    TsanRelease(&internal::end_of_region);
  }
  TsanAcquire(&internal::end_of_region);
}

// Calls body(i) for i in [0, n) in fixed equal parts on the OpenMP threads. The bodies must write
// disjoint data, so the result does not depend on the number of threads.
template <typename Body>
void ParallelFor(int64_t n, const Body& body) {
#pragma omp parallel
  {
#pragma omp for schedule(static) nowait
    for (int64_t i = 0; i < n; ++i) body(i);
    TsanRelease(&internal::end_of_region);
  }
  TsanAcquire(&internal::end_of_region);
}

// Called after a library's parallel region. Informs ThreadSanitizer that the team's threads have
// finished.
inline void AfterForeignRegion() {
#ifdef __SANITIZE_THREAD__
  InTeam(omp_get_max_threads(), [](int) {});
#endif
}

}  // namespace muster::cpu
