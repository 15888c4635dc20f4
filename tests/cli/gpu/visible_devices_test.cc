// CUDA_VISIBLE_DEVICES in all its forms, with a stand-in for the CUDA driver (fake_cuda.cc) in a
// child process.
#include "cli/gpu/visible_devices.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>

#include "cli/gpu/gpu.h"
#include "tests/base/paths.h"
#include "tests/data/temp_dir.h"

namespace muster::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// In NVML's order. CUDA lists the fastest first: b, c, then a, then the MIG parts.
constexpr const char* kA = "GPU-aaaaaaaa-0000-0000-0000-000000000000";
constexpr const char* kB = "GPU-bbbbbbbb-0000-0000-0000-000000000000";
constexpr const char* kC = "GPU-cccccccc-0000-0000-0000-000000000000";
constexpr const char* kPart = "MIG-dddddddd-0000-0000-0000-000000000000";
constexpr const char* kOtherPart = "MIG-eeeeeeee-0000-0000-0000-000000000000";

class VisibleDevicesTest : public ::testing::Test {
 protected:
  VisibleDevicesTest() {
    ::setenv("FAKE_CARDS", (dir_.path() / "cards").c_str(), 1);
    Cards("");
  }
  ~VisibleDevicesTest() override {
    for (const char* name : {"FAKE_CARDS", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"}) {
      ::unsetenv(name);
    }
  }
  void Cards(const std::string& of_a) {
    std::ofstream(dir_.path() / "cards")
        << "uuid=" << kA << " speed=1 " << of_a << "\nuuid=" << kB << " speed=3\nuuid=" << kC
        << " speed=2\nuuid=GPU-9 parts=" << kPart << "," << kOtherPart << "\n";
  }
  static std::vector<std::string> Visible(const char* value, const std::string& library,
                                          const char* order = nullptr) {
    ::setenv("CUDA_VISIBLE_DEVICES", value, 1);
    order != nullptr ? ::setenv("CUDA_DEVICE_ORDER", order, 1) : ::unsetenv("CUDA_DEVICE_ORDER");
    const GpuSnapshot seen = OpenNvml(FakeNvml())->Look();
    const VisibleGpus visible =
        ReadVisibleDevices(value, seen, [&library] { return AskCuda(library.c_str()); });
    EXPECT_TRUE(visible.limited);
    EXPECT_EQ(visible.value, value);
    return visible.uuids;
  }

  TempDir dir_;
};

constexpr const char* kPciOrder = "PCI_BUS_ID";

TEST_F(VisibleDevicesTest, NotSetLeavesAll) {
  const GpuSnapshot seen = OpenNvml(FakeNvml())->Look();
  const VisibleGpus visible = ReadVisibleDevices(nullptr, seen, [] {
    ADD_FAILURE() << "the driver need not be queried";
    return std::vector<std::string>();
  });
  EXPECT_FALSE(visible.limited);
  EXPECT_THAT(visible.uuids, ElementsAre(kA, kB, kC, kPart, kOtherPart));
}

TEST_F(VisibleDevicesTest, IntegersCountInCudasOrder) {
  EXPECT_THAT(Visible("0", FakeCuda()), ElementsAre(kB));
  EXPECT_THAT(Visible("2,0", FakeCuda()), ElementsAre(kA, kB));
  EXPECT_THAT(Visible("0", FakeCuda(), kPciOrder), ElementsAre(kA));
  EXPECT_THAT(Visible("1,2", FakeCuda(), kPciOrder), ElementsAre(kB, kC));
}

TEST_F(VisibleDevicesTest, UuidsAndTheirBeginnings) {
  EXPECT_THAT(Visible(kC, FakeCuda()), ElementsAre(kC));
  EXPECT_THAT(Visible("GPU-c,GPU-aa", FakeCuda()), ElementsAre(kC, kA));
  EXPECT_THAT(Visible(kOtherPart, FakeCuda()), ElementsAre(kOtherPart));
}

TEST_F(VisibleDevicesTest, EmptyIsNone) {
  EXPECT_THAT(Visible("", FakeCuda()), IsEmpty());
  EXPECT_THAT(Visible("-1", FakeCuda()), IsEmpty());
}

TEST_F(VisibleDevicesTest, TheListEndsAtTheFirstThatIsNotThere) {
  EXPECT_THAT(Visible("0,7,1", FakeCuda()), ElementsAre(kB));
  EXPECT_THAT(Visible("GPU-a,GPU-f,GPU-b", FakeCuda()), ElementsAre(kA));
}

// Only the child loads CUDA's library.
TEST_F(VisibleDevicesTest, TheDriverIsNotLoadedHere) {
  ASSERT_THAT(Visible("0", FakeCuda()), ElementsAre(kB));
  EXPECT_EQ(ReadBytes("/proc/self/maps").find("libcuda"), std::string::npos);
}

TEST_F(VisibleDevicesTest, WithoutADriverNone) {
  EXPECT_THAT(Visible(kA, "libno-such-cuda.so.1"), IsEmpty());
  Cards("crash=1");  // crashes the child
  EXPECT_THAT(Visible(kA, FakeCuda()), IsEmpty());
  EXPECT_EQ(AskCuda(FakeCuda().c_str()), std::nullopt);
}

}  // namespace
}  // namespace muster::testing
