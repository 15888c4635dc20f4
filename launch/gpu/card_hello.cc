#include "launch/gpu/card_hello.h"

#include <algorithm>
#include <cctype>

#include "common/base/error.h"
#include "launch/gpu/cuda_driver.h"

namespace muster {
namespace {

// c[i] = a[i] * b[i] of one block of threads. PTX is what the driver itself compiles, for whichever
// card there is: no toolkit is needed.
constexpr const char* kMultiply = R"(.version 6.0
.target sm_50
.address_size 64

.visible .entry multiply(.param .u64 a, .param .u64 b, .param .u64 c)
{
  .reg .f32 %f<4>;
  .reg .b32 %r<2>;
  .reg .b64 %p<8>;

  ld.param.u64 %p1, [a];
  ld.param.u64 %p2, [b];
  ld.param.u64 %p3, [c];
  cvta.to.global.u64 %p1, %p1;
  cvta.to.global.u64 %p2, %p2;
  cvta.to.global.u64 %p3, %p3;
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %p4, %r1, 4;
  add.s64 %p5, %p1, %p4;
  add.s64 %p6, %p2, %p4;
  add.s64 %p7, %p3, %p4;
  ld.global.f32 %f1, [%p5];
  ld.global.f32 %f2, [%p6];
  mul.f32 %f3, %f1, %f2;
  st.global.f32 [%p7], %f3;
  ret;
}
)";

// The card's context, current for this thread.
class Context {
 public:
  explicit Context(const CudaDriver& driver) : driver_(driver), device_(driver.Device(0)) {
    void* context = nullptr;
    driver_.Check(driver_.api().retain_context(&context, device_), "cuDevicePrimaryCtxRetain");
    driver_.Check(driver_.api().set_context(context), "cuCtxSetCurrent");
  }
  ~Context() { (void)driver_.api().release_context(device_); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

 private:
  const CudaDriver& driver_;
  int device_;
};

class CardMemory {
 public:
  explicit CardMemory(const CudaDriver& driver) : driver_(driver) {
    driver_.Check(driver_.api().allocate(&pointer_, sizeof kHelloA), "cuMemAlloc");
  }
  ~CardMemory() { (void)driver_.api().release(pointer_); }
  CardMemory(const CardMemory&) = delete;
  CardMemory& operator=(const CardMemory&) = delete;

  CudaApi::Pointer* address() { return &pointer_; }
  void Write(const float* numbers) {
    driver_.Check(driver_.api().copy_in(pointer_, numbers, sizeof kHelloA), "cuMemcpyHtoD");
  }
  std::vector<float> Read() const {
    std::vector<float> numbers(kHelloNumbers);
    driver_.Check(driver_.api().copy_out(numbers.data(), pointer_, sizeof kHelloA), "cuMemcpyDtoH");
    return numbers;
  }

 private:
  const CudaDriver& driver_;
  CudaApi::Pointer pointer_ = 0;
};

void CheckCard(const CudaDriver& driver, const std::string& uuid) {
  if (driver.count() != 1) {
    throw Error(ExitCode::kFailure, "expected CUDA to see this card alone, it sees {}",
                driver.count());
  }
  std::string expected = uuid.substr(std::min<size_t>(4, uuid.size()));
  for (char& c : expected) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (driver.UuidOf(0) == expected) return;
  throw Error(ExitCode::kFailure, "expected CUDA to see {}, it sees {} ({})", uuid,
              driver.UuidOf(0), driver.NameOf(0));
}

}  // namespace

std::vector<float> MultiplyOnCard(const std::string& library, const std::string& uuid) {
  const CudaDriver driver(library);
  CheckCard(driver, uuid);
  const CudaApi& api = driver.api();
  const Context context(driver);
  void* module = nullptr;
  void* multiply = nullptr;
  driver.Check(api.load_module(&module, kMultiply), "cuModuleLoadData");
  driver.Check(api.get_function(&multiply, module, "multiply"), "cuModuleGetFunction");
  CardMemory a(driver), b(driver), c(driver);
  a.Write(kHelloA);
  b.Write(kHelloB);
  void* parameters[] = {a.address(), b.address(), c.address()};
  driver.Check(api.launch(multiply, 1, 1, 1, kHelloNumbers, 1, 1, 0, nullptr, parameters, nullptr),
               "cuLaunchKernel");
  driver.Check(api.synchronize(), "cuCtxSynchronize");
  return c.Read();
}

}  // namespace muster
