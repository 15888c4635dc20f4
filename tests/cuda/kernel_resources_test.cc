// The resources of nvcc's kernels, as read from libmuster_cuda.so.
#include "tests/cuda/software_gpu/kernel_resources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/error.h"

namespace muster::software_gpu {
namespace {

using ::testing::AllOf;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Le;

TEST(KernelResourcesTest, UnnamedNamespacesAreCalledAsGccCallsThem) {
  EXPECT_EQ(
      HostNameOf("_ZN6muster4cuda46_GLOBAL__N__3fcf18d5_13_batch_norm_cu_2f96423815SumKernelEv"),
      "_ZN6muster4cuda12_GLOBAL__N_115SumKernelEv");
  EXPECT_EQ(
      HostNameOf("_ZN6muster9MapKernelINS_46_GLOBAL__N__3fcf18d5_13_batch_norm_cu_2f9642385Relu6E"
                 "NS_46_GLOBAL__N__3fcf18d5_13_batch_norm_cu_2f9642383SumEEEvv"),
      "_ZN6muster9MapKernelINS_12_GLOBAL__N_15Relu6ENS_12_GLOBAL__N_13SumEEEvv");
  // nvcc adds a number of its own in some files.
  EXPECT_EQ(HostNameOf("_ZN6muster4cuda48_GLOBAL__N__e5d61f83_10_softmax_cu_04fdf6a5_109513"
                       "SoftmaxKernelIfEEvPKT_PS3_li"),
            "_ZN6muster4cuda12_GLOBAL__N_113SoftmaxKernelIfEEvPKT_PS3_li");
  EXPECT_EQ(HostNameOf("_ZN6muster9MapKernelEv"), "_ZN6muster9MapKernelEv");
}

TEST(KernelResourcesTest, AFileThatIsNoLibraryIsAnError) {
  EXPECT_THROW((void)ReadKernelResources("/proc/self/cmdline"), Error);
  EXPECT_THROW((void)ReadKernelResources("/nonexistent"), Error);
  EXPECT_THAT(ReadKernelResources("/proc/self/exe"), IsEmpty());  // not made by nvcc
}

// Checks the numbers in docs/GPUS.md.
TEST(KernelResourcesTest, FourBlocksLiveOnAMultiprocessor) {
  if (*MUSTER_REAL_PLUGIN == '\0') GTEST_SKIP() << "built without nvcc";
  const auto kernels = ReadKernelResources(MUSTER_REAL_PLUGIN);
  EXPECT_GT(kernels.size(), 100u);
  size_t with_shared_memory = 0;
  for (const auto& [name, needs] : kernels) {
    EXPECT_THAT(needs.registers, AllOf(Ge(2), Le(64))) << name;  // an empty kernel on sm_61 uses 2
    EXPECT_EQ(WhyTooLarge(needs, 256, 0, 48 << 10), "") << name;
    EXPECT_LE(needs.shared_bytes, 5u << 10) << name;
    with_shared_memory += needs.shared_bytes > 0 ? 1 : 0;
    if (name.find("StatisticsPartsKernel") != std::string::npos) {
      EXPECT_GE(needs.shared_bytes, 4096u) << name;  // two doubles for each of 256 threads
    }
  }
  EXPECT_GT(with_shared_memory, 4u);
}

}  // namespace
}  // namespace muster::software_gpu
