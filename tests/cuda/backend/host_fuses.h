// Whether the host's compiler makes fused multiply-adds wherever it can, as the kernels do. Between
// two operations that a sanitizer looks at it makes none.
#pragma once

namespace muster {

#if defined(__FMA__) && defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__)
inline constexpr bool kHostFuses = true;
#else
inline constexpr bool kHostFuses = false;
#endif

}  // namespace muster
