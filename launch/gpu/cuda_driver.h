// CUDA's driver library, in a process that is made for it alone: muster itself never loads it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "launch/gpu/shared_library.h"

namespace muster {

// The functions that Muster calls, declared here as those of NVML are (nvml_api.h).
struct CudaApi {
  using Result = int;
  using Pointer = unsigned long long;  // into a card's memory
  struct Uuid {
    char bytes[16];
  };

  Result (*init)(unsigned);
  Result (*device_count)(int*);
  Result (*device)(int*, int);
  Result (*uuid)(Uuid*, int);
  Result (*name)(char*, int, int);
  Result (*error_name)(Result, const char**);
  Result (*retain_context)(void**, int);
  Result (*set_context)(void*);
  Result (*release_context)(int);
  Result (*load_module)(void**, const void*);
  Result (*get_function)(void**, void*, const char*);
  Result (*allocate)(Pointer*, size_t);
  Result (*release)(Pointer);
  Result (*copy_in)(Pointer, const void*, size_t);
  Result (*copy_out)(void*, Pointer, size_t);
  Result (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                   void*, void**, void**);
  Result (*synchronize)();
};

// Loaded and initialised; the cards are those that CUDA_VISIBLE_DEVICES of this process leaves.
class CudaDriver {
 public:
  static constexpr const char* kLibrary = "libcuda.so.1";

  // Throws Error(kFailure) where the library, or a function of it, is missing. A driver that has no
  // card for this process is no error: count() is 0.
  explicit CudaDriver(const std::string& library = kLibrary);

  int count() const { return count_; }
  int Device(int ordinal) const;
  // As NVML writes it, but for its kind: "1b2c3d4e-…".
  std::string UuidOf(int ordinal) const;
  std::string NameOf(int ordinal) const;

  const CudaApi& api() const { return api_; }
  // Throws Error(kFailure) that names what was tried.
  void Check(CudaApi::Result result, const char* what) const;

 private:
  SharedLibrary library_;
  CudaApi api_;
  int count_ = 0;
};

}  // namespace muster
