// Whether the compiler emits fused multiply-adds wherever it can in Muster's libraries, as it does
// in the kernels. Sanitizers prevent it by inserting checks between the operations.
#pragma once

namespace muster {

#if defined(__FMA__) && defined(MUSTER_RELEASE) && !defined(__SANITIZE_ADDRESS__)
inline constexpr bool kHostFuses = true;
#else
inline constexpr bool kHostFuses = false;
#endif

}  // namespace muster
