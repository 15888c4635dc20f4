#include <fmt/core.h>

#include <dnnl.hpp>

#include "worker/backend/cpu/cpu_backend.h"

namespace muster {
namespace {

// The instruction set for which oneDNN chooses its kernels. Newer ones are shown as a number.
std::string InstructionSetOfOneDnn() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::sse41:
      return "SSE4.1";
    case dnnl::cpu_isa::avx:
      return "AVX";
    case dnnl::cpu_isa::avx2:
      return "AVX2";
    case dnnl::cpu_isa::avx512_core:
      return "AVX-512";
    case dnnl::cpu_isa::avx512_core_vnni:
      return "AVX-512 VNNI";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "AVX-512 BF16";
    default:
      return fmt::format("instruction set {:#x}",
                         static_cast<unsigned>(dnnl::get_effective_cpu_isa()));
  }
}

}  // namespace

bool CpuHasBf16() {
  return __builtin_cpu_supports("avx512bf16") &&
         dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core_bf16;
}

std::string CpuArithmetic(int threads, const CpuOptions& options) {
  const dnnl_version_t& version = *dnnl::version();
  return fmt::format("oneDNN {}.{}.{} ({}){}, {} thread{}, convolutions {}", version.major,
                     version.minor, version.patch, InstructionSetOfOneDnn(),
                     options.bf16 ? " in BF16" : "", threads, threads == 1 ? "" : "s",
                     options.winograd && !options.bf16 ? "AUTO" : "DIRECT");
}

}  // namespace muster
