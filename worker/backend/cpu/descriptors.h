// Hides the differences between oneDNN 2.6 and 3.x in making a primitive's descriptor and in
// appending a relu to it. oneDNN 3 has no operation descriptors; the arguments are the same, in the
// same order. Included only inside worker/backend/cpu.
#pragma once

#include <dnnl.hpp>

namespace muster::cpu {

// What to do if oneDNN has no implementation: throw dnnl::error, or return an empty descriptor.
enum class IfNone { kThrow, kEmpty };

// Makes the descriptor of a forward primitive, for example dnnl::convolution_forward, from the
// arguments of its operation.
template <typename P, typename... Arguments>
typename P::primitive_desc ForwardDescriptorOf(const dnnl::engine& engine, IfNone if_none,
                                               const dnnl::primitive_attr& attributes,
                                               const Arguments&... arguments) {
  const bool allow_empty = if_none == IfNone::kEmpty;
#if DNNL_VERSION_MAJOR >= 3
  return typename P::primitive_desc(engine, arguments..., attributes, allow_empty);
#else
  return
      typename P::primitive_desc(typename P::desc(arguments...), attributes, engine, allow_empty);
#endif
}

// Makes the descriptor of a backward primitive from that of its forward primitive.
template <typename P, typename Forward, typename... Arguments>
typename P::primitive_desc BackwardDescriptorOf(const dnnl::engine& engine, IfNone if_none,
                                                const dnnl::primitive_attr& attributes,
                                                const Forward& forward,
                                                const Arguments&... arguments) {
  const bool allow_empty = if_none == IfNone::kEmpty;
#if DNNL_VERSION_MAJOR >= 3
  return typename P::primitive_desc(engine, arguments..., forward, attributes, allow_empty);
#else
  return typename P::primitive_desc(typename P::desc(arguments...), attributes, engine, forward,
                                    allow_empty);
#endif
}

inline void AppendRelu(dnnl::post_ops& ops, float slope) {
#if DNNL_VERSION_MAJOR >= 3
  ops.append_eltwise(dnnl::algorithm::eltwise_relu, slope, 0.0f);
#else
  ops.append_eltwise(1.0f, dnnl::algorithm::eltwise_relu, slope, 0.0f);
#endif
}

}  // namespace muster::cpu
