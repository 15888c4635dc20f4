// CUDA_VISIBLE_DEVICES in all its forms, by a stand-in for CUDA's driver (fake_cuda.cc) in a child
// process, and by hand where there is no driver.
#include "launch/gpu/visible_devices.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>

#include "common/base/error.h"
#include "launch/gpu/card_hello.h"
#include "launch/gpu/child_task.h"
#include "launch/gpu/gpu_probe.h"
#include "tests/data/temp_dir.h"

namespace muster::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// In NVML's order; CUDA counts the fastest first: b, c, then a, and the parts of the divided card.
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
  static std::vector<std::string> Ask(const char* library) {
    return RunInChild(
        "the CUDA driver", [library] { return AskDriver(library); }, 30);
  }
  static std::vector<std::string> Visible(const char* value, const char* library,
                                          const char* order = nullptr) {
    ::setenv("CUDA_VISIBLE_DEVICES", value, 1);
    order != nullptr ? ::setenv("CUDA_DEVICE_ORDER", order, 1) : ::unsetenv("CUDA_DEVICE_ORDER");
    const GpuSnapshot seen = OpenNvml(FAKE_NVML_LIBRARY)->Look();
    const VisibleCards visible =
        ReadVisibleDevices(value, order, seen, [library] { return Ask(library); });
    EXPECT_TRUE(visible.limited);
    EXPECT_EQ(visible.value, value);
    return visible.uuids;
  }

  TempDir dir_;
};

constexpr const char* kPciOrder = "PCI_BUS_ID";
constexpr const char* kNoLibrary = "libno-such-cuda.so.1";

TEST_F(VisibleDevicesTest, NotSetLeavesAll) {
  const GpuSnapshot seen = OpenNvml(FAKE_NVML_LIBRARY)->Look();
  const VisibleCards visible = ReadVisibleDevices(nullptr, nullptr, seen, [] {
    ADD_FAILURE() << "nobody need be asked";
    return std::vector<std::string>();
  });
  EXPECT_FALSE(visible.limited);
  EXPECT_THAT(visible.uuids, ElementsAre(kA, kB, kC, kPart, kOtherPart));
}

TEST_F(VisibleDevicesTest, IntegersCountInCudasOrder) {
  EXPECT_THAT(Visible("0", FAKE_CUDA_LIBRARY), ElementsAre(kB));
  EXPECT_THAT(Visible("2,0", FAKE_CUDA_LIBRARY), ElementsAre(kA, kB));
  EXPECT_THAT(Visible("0", FAKE_CUDA_LIBRARY, kPciOrder), ElementsAre(kA));
  EXPECT_THAT(Visible("1,2", FAKE_CUDA_LIBRARY, kPciOrder), ElementsAre(kB, kC));
}

TEST_F(VisibleDevicesTest, UuidsAndTheirBeginnings) {
  EXPECT_THAT(Visible(kC, FAKE_CUDA_LIBRARY), ElementsAre(kC));
  EXPECT_THAT(Visible("GPU-c,GPU-aa", FAKE_CUDA_LIBRARY), ElementsAre(kC, kA));
  EXPECT_THAT(Visible(kOtherPart, FAKE_CUDA_LIBRARY), ElementsAre(kOtherPart));
}

TEST_F(VisibleDevicesTest, EmptyIsNone) {
  EXPECT_THAT(Visible("", FAKE_CUDA_LIBRARY), IsEmpty());
  EXPECT_THAT(Visible("-1", FAKE_CUDA_LIBRARY), IsEmpty());
}

TEST_F(VisibleDevicesTest, TheListEndsAtTheFirstThatIsNotThere) {
  EXPECT_THAT(Visible("0,7,1", FAKE_CUDA_LIBRARY), ElementsAre(kB));
  EXPECT_THAT(Visible("GPU-a,GPU-f,GPU-b", FAKE_CUDA_LIBRARY), ElementsAre(kA));
}

// CUDA's library is in the child, and nowhere else.
TEST_F(VisibleDevicesTest, TheDriverIsNotLoadedHere) {
  ASSERT_THAT(Visible("0", FAKE_CUDA_LIBRARY), ElementsAre(kB));
  EXPECT_EQ(ReadBytes("/proc/self/maps").find("libcuda"), std::string::npos);
}

TEST_F(VisibleDevicesTest, WithoutADriverWhatNeedsNone) {
  EXPECT_THAT(Visible("GPU-c,GPU-a", kNoLibrary), ElementsAre(kC, kA));
  EXPECT_THAT(Visible(kPart, kNoLibrary), ElementsAre(kPart));
  EXPECT_THAT(Visible("1,0", kNoLibrary, kPciOrder), ElementsAre(kB, kA));
  EXPECT_THAT(Visible("1,5,0", kNoLibrary, kPciOrder), ElementsAre(kB));
  EXPECT_THAT(Visible("1,1", kNoLibrary, kPciOrder), IsEmpty());
  EXPECT_THAT(Visible("GPU-a,nonsense,GPU-b", kNoLibrary), ElementsAre(kA));
  try {
    (void)Visible("0", kNoLibrary);
    ADD_FAILURE() << "it guessed";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("counts in CUDA's order"));
  }
}

// A driver that takes its process with it is like one that is not there.
TEST_F(VisibleDevicesTest, ADriverThatCrashes) {
  Cards("crash=1");
  EXPECT_THAT(Visible(kA, FAKE_CUDA_LIBRARY), ElementsAre(kA));
}

std::vector<float> Multiplied(const char* uuid) {
  ::setenv("CUDA_VISIBLE_DEVICES", uuid, 1);
  std::vector<float> products;
  for (const std::string& text : RunInChild(
           "CUDA",
           [uuid] {
             std::vector<std::string> texts;
             for (const float number : MultiplyOnCard(FAKE_CUDA_LIBRARY, uuid)) {
               texts.push_back(std::to_string(number));
             }
             return texts;
           },
           30)) {
    products.push_back(std::stof(text));
  }
  return products;
}

TEST_F(VisibleDevicesTest, ACardMultiplies) {
  EXPECT_THAT(Multiplied(kC), ElementsAre(7, 16, 27, 40, 55, 72));
  Cards("wrong=1");
  EXPECT_THAT(Multiplied(kA), ElementsAre(8, 17, 28, 41, 56, 73));
  Cards("context=fails");
  EXPECT_THROW((void)Multiplied(kA), Error);
}

TEST(ChildTaskTest, WhatBecomesOfATask) {
  EXPECT_THAT(RunInChild(
                  "a task",
                  [] {
                    return std::vector<std::string>{"one", "", "three"};
                  },
                  30),
              ElementsAre("one", "", "three"));
  const auto failure = [](const std::function<std::vector<std::string>()>& task, double deadline) {
    try {
      (void)RunInChild("a task", task, deadline);
    } catch (const Error& error) {
      return std::to_string(static_cast<int>(error.code())) + " " + error.what();
    }
    return std::string("none");
  };
  using Lines = std::vector<std::string>;
  EXPECT_EQ(failure([]() -> Lines { throw Error(ExitCode::kData, "no data"); }, 30), "3 no data");
  EXPECT_EQ(failure([]() -> Lines { throw std::runtime_error("odd"); }, 30), "1 odd");
  EXPECT_EQ(failure(
                []() -> Lines {
                  ::kill(::getpid(), SIGKILL);
                  return {};
                },
                30),
            "1 a task crashed (signal 9)");
  EXPECT_EQ(failure(
                []() -> Lines {
                  for (;;) ::pause();
                },
                0.1),
            "5 a task did not answer within 0.1 s");
}

}  // namespace
}  // namespace muster::testing
