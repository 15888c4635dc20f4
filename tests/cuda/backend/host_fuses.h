// Whether the host's compiler emits fused multiply-adds wherever it can, as the kernels do.
// Sanitizers prevent it by inserting checks between the operations.
#pragma once

namespace muster {

#if defined(__FMA__) && defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__)
inline constexpr bool kHostFuses = true;
#else
inline constexpr bool kHostFuses = false;
#endif

}  // namespace muster
