// How NVML's answers are interpreted, with a stand-in for its library (fake_nvml.cc).
#include <gmock/gmock.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>

#include "cli/gpu/gpu.h"
#include "cli/gpu/usage.h"
#include "cli/gpu/visible_devices.h"
#include "cli/process/signal_source.h"
#include "common/base/error.h"
#include "common/base/file.h"
#include "tests/base/paths.h"
#include "tests/cli/gpu/gpu_fixture.h"
#include "tests/data/temp_dir.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class NvmlTest : public ::testing::Test {
 protected:
  NvmlTest() { ::setenv("FAKE_CARDS", (dir_.path() / "cards").c_str(), 1); }
  ~NvmlTest() override {
    ::unsetenv("FAKE_CARDS");
    ::unsetenv("FAKE_NVML_BROKEN");
  }
  void Cards(const std::string& lines) {
    std::ofstream(dir_.path() / "new") << lines;
    std::filesystem::rename(dir_.path() / "new", dir_.path() / "cards");
  }
  static std::unique_ptr<GpuProbe> Open() { return OpenNvml(FakeNvml()); }

  TempDir dir_;
};

TEST_F(NvmlTest, EverythingAboutACard) {
  Cards(
      "uuid=GPU-1 name=NVIDIA_H100_80GB_HBM3 pci=00000000:3B:00.0 total=81559 used=1024 util=37 "
      "temp=61 slow=87 power=412 cores=2-4 node=1 pids=41:500,42 draws=77:10,41:3 ecc=2 "
      "mode=3\n");
  const GpuSnapshot seen = Open()->Look();
  EXPECT_EQ(seen.driver, "580.65.06");
  EXPECT_EQ(seen.none, "");
  ASSERT_THAT(seen.gpus, SizeIs(1));
  const Gpu& gpu = seen.gpus[0];
  EXPECT_EQ(gpu.index, "0");
  EXPECT_EQ(gpu.uuid, "GPU-1");
  EXPECT_EQ(gpu.name, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(gpu.pci, "00000000:3B:00.0");
  EXPECT_EQ(gpu.trouble, "");
  EXPECT_EQ(gpu.total_bytes, 81559ull << 20);
  EXPECT_EQ(gpu.used_bytes, 1024ull << 20);
  EXPECT_EQ(gpu.free_bytes, 80535ull << 20);
  EXPECT_EQ(gpu.sensors.utilization, 37u);
  EXPECT_EQ(gpu.sensors.temperature, 61u);
  EXPECT_EQ(gpu.limits.slowdown_temperature, 87u);
  EXPECT_EQ(gpu.sensors.power_w, 412.0);
  EXPECT_EQ(gpu.limits.power_w, 700.0);
  EXPECT_EQ(gpu.ecc, true);
  EXPECT_EQ(gpu.ecc_errors, 2u);
  EXPECT_TRUE(gpu.exclusive);
  EXPECT_THAT(gpu.cores, ElementsAre(2, 3, 4));
  EXPECT_THAT(gpu.memory_nodes, ElementsAre(1));
  ASSERT_THAT(gpu.processes, SizeIs(3));  // a process that computes and draws is listed once
  EXPECT_EQ(gpu.processes[0].pid, 41);
  EXPECT_EQ(gpu.processes[0].bytes, 500ull << 20);
  EXPECT_TRUE(gpu.processes[0].computes);
  EXPECT_EQ(gpu.processes[1].bytes, std::nullopt);
  EXPECT_EQ(gpu.processes[2].pid, 77);
  EXPECT_FALSE(gpu.processes[2].computes);
}

TEST_F(NvmlTest, CardsComeAndGo) {
  Cards("uuid=GPU-1\n");
  const auto probe = Open();
  EXPECT_THAT(probe->Look().gpus, SizeIs(1));
  Cards("uuid=GPU-1\nuuid=GPU-2\n");
  EXPECT_THAT(probe->Look().gpus, SizeIs(2));
  Cards("");
  const GpuSnapshot none = probe->Look();
  EXPECT_THAT(none.gpus, IsEmpty());
  EXPECT_EQ(none.none, "the NVIDIA driver has no GPUs");
}

// A lost GPU keeps its position, so that indices match nvidia-smi's.
TEST_F(NvmlTest, ALostCardIsNamed) {
  Cards("uuid=GPU-1\nuuid=GPU-2 fail=handle:15\nuuid=GPU-3 fail=uuid:15\nuuid=GPU-4\n");
  const GpuSnapshot seen = Open()->Look();
  ASSERT_THAT(seen.gpus, SizeIs(4));
  EXPECT_EQ(seen.gpus[1].trouble, "GPU is lost");
  EXPECT_EQ(seen.gpus[2].trouble, "it has no UUID: GPU is lost");
  EXPECT_EQ(seen.gpus[3].index, "3");
  EXPECT_EQ(seen.gpus[3].trouble, "");
}

TEST_F(NvmlTest, CardsThatLieAreNotBelieved) {
  Cards(
      "uuid=GPU-1 total=100 used=4 free=200\n"
      "uuid=GPU-2 total=100 used=101 free=5\n"
      "uuid=GPU-3 util=300 temp=4000 slow=9999 power=200000\n"
      "uuid=GPU-5 fail=memory:999\n"
      "uuid=GPU-6 mode=2\n");
  const GpuSnapshot seen = Open()->Look();
  ASSERT_THAT(seen.gpus, SizeIs(5));
  EXPECT_THAT(seen.gpus[0].trouble, HasSubstr("does not add up"));
  EXPECT_THAT(seen.gpus[1].trouble, HasSubstr("does not add up"));
  EXPECT_EQ(seen.gpus[2].trouble, "");
  EXPECT_EQ(seen.gpus[2].sensors.utilization, std::nullopt);
  EXPECT_EQ(seen.gpus[2].sensors.temperature, std::nullopt);
  EXPECT_EQ(seen.gpus[2].limits.slowdown_temperature, std::nullopt);
  EXPECT_EQ(seen.gpus[2].sensors.power_w, std::nullopt);
  EXPECT_EQ(seen.gpus[3].trouble, "cannot read its memory: Unknown Error");
  EXPECT_THAT(seen.gpus[4].trouble, HasSubstr("PROHIBITED"));
}

// The reading of a moment ago says little about a GPU on which nothing is seen.
TEST_F(NvmlTest, WorkOfUnseenProcessesIsBelievedOnlyIfItLasts) {
  Cards("uuid=GPU-1 total=80000 used=4000 util=98\n");
  EXPECT_THAT(WhyBusy(Open()->Look().gpus.at(0), 0), HasSubstr("compute on it 98 % of the time"));
  Cards("uuid=GPU-1 total=80000 used=4000 util=98 draws=77:10\n");  // graphics do not explain it
  EXPECT_THAT(WhyBusy(Open()->Look().gpus.at(0), 0), HasSubstr("compute on it 98 % of the time"));
  Cards("uuid=GPU-1 total=80000 used=4000 util=98 rests=1\n");
  EXPECT_EQ(WhyBusy(Open()->Look().gpus.at(0), 0), "");
}

TEST_F(NvmlTest, ADividedCardIsItsParts) {
  Cards("uuid=GPU-1\nuuid=GPU-2 pci=00000000:5E:00.0 temp=50 parts=MIG-a,MIG-b\n");
  const GpuSnapshot seen = Open()->Look();
  ASSERT_THAT(seen.gpus, SizeIs(3));
  EXPECT_EQ(seen.gpus[1].index, "1:0");
  EXPECT_EQ(seen.gpus[1].uuid, "MIG-a");
  EXPECT_EQ(seen.gpus[2].index, "1:1");
  EXPECT_EQ(seen.gpus[2].uuid, "MIG-b");
  EXPECT_EQ(seen.gpus[2].pci, "00000000:5E:00.0");
  EXPECT_EQ(seen.gpus[2].sensors.temperature, 50u);
  EXPECT_EQ(seen.gpus[2].trouble, "");
}

TEST_F(NvmlTest, ManyProcesses) {
  std::string pids = "1000:1";
  for (int pid = 1001; pid < 1300; ++pid) pids += "," + std::to_string(pid) + ":1";
  Cards("uuid=GPU-1 pids=" + pids + "\n");
  EXPECT_THAT(Open()->Look().gpus.at(0).processes, SizeIs(300));
}

TEST_F(NvmlTest, HowCardsReachOneAnother) {
  Cards(
      "uuid=GPU-1 nvlink=A node=0\nuuid=GPU-2 nvlink=A pcie=X node=0\nuuid=GPU-3 pcie=X node=0\n"
      "uuid=GPU-4 node=0\nuuid=GPU-5 node=1\n");
  const auto probe = Open();
  EXPECT_THAT(probe->Look().links, IsEmpty());
  const GpuSnapshot seen = probe->Look(LookAtLinks::kYes);
  EXPECT_EQ(seen.links[0][1], GpuLink::kNvlink);
  EXPECT_EQ(seen.links[2][1], GpuLink::kSwitch);
  EXPECT_EQ(seen.links[0][3], GpuLink::kNode);
  EXPECT_EQ(seen.links[4][0], GpuLink::kSystem);
}

TEST_F(NvmlTest, WithoutADriverThereAreNone) {
  const GpuSnapshot missing = OpenNvml("libno-such-nvml.so.1")->Look();
  EXPECT_THAT(missing.gpus, IsEmpty());
  EXPECT_FALSE(missing.failed);
  EXPECT_THAT(missing.none, HasSubstr("no NVIDIA driver was found here (libno-such-nvml.so.1"));
  ::setenv("FAKE_NVML_BROKEN", "1", 1);
  const GpuSnapshot broken = Open()->Look();
  EXPECT_THAT(broken.gpus, IsEmpty());
  EXPECT_EQ(broken.none, "the NVIDIA driver does not answer: Driver Not Loaded");
  EXPECT_TRUE(broken.failed);
}

// The text of the error, which must be that of an expired deadline.
std::string HowItHangs(const std::function<void()>& ask) {
  try {
    ask();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kDeadline) << error.what();
    return error.what();
  }
  return "it did not hang";
}

TEST_F(NvmlTest, ADriverThatHangsIsAnErrorThatNamesTheCall) {
  Cards("uuid=GPU-1\nuuid=GPU-2 hang=init\n");
  EXPECT_THAT(HowItHangs([] { (void)OpenNvml(FakeNvml(), 0.1)->Look(); }),
              AllOf(HasSubstr("an answer of nvmlInit within 0.1 s"), HasSubstr("--devices cpu")));
  Cards("uuid=GPU-1\nuuid=GPU-2 hang=cuda\n");
  EXPECT_THAT(HowItHangs([] { (void)AskCuda(FakeCuda(), 0.1); }), HasSubstr("cuInit"));
}

TEST_F(NvmlTest, AfterAHangAnotherProcessAsks) {
  Cards("uuid=GPU-1\nuuid=GPU-2 hang=memory\n");
  const std::unique_ptr<GpuProbe> probe = OpenNvml(FakeNvml(), 0.5);
  (void)HowItHangs([&] { (void)probe->Look(); });
  Cards("uuid=GPU-1\nuuid=GPU-2\n");
  size_t seen = 0;
  EXPECT_TRUE(Eventually([&] {  // on a busy machine half a second may be too short
    (void)HowItHangs([&] { seen = probe->Look().gpus.size(); });
    return seen == 2;
  }));
}

// As long as it lives, the process of a driver that hangs must not hold what this one has opened.
TEST_F(NvmlTest, TheProcessOfTheDriverHasNoFilesOfThisOne) {
  Cards("uuid=GPU-1\n");
  const std::string path = dir_.path() / "lock";
  UniqueFd lock(::open(path.c_str(), O_RDWR | O_CREAT, 0600));
  ASSERT_EQ(TryLock(lock.get()), Locked::kYes);
  const auto probe = Open();
  ASSERT_THAT(probe->Look().gpus, SizeIs(1));
  lock.Reset();
  EXPECT_EQ(TryLock(UniqueFd(::open(path.c_str(), O_RDWR)).get()), Locked::kYes);
}

TEST_F(NvmlTest, ASignalEndsTheWait) {
  Cards("uuid=GPU-1 hang=memory\n");
  ForkedProcess asks([] {
    const SignalSource signals;
    try {
      (void)OpenNvml(FakeNvml())->Look();
    } catch (const Error& error) {
      return static_cast<int>(error.code());
    }
    return 0;
  });
  EXPECT_TRUE(Eventually([&] { return std::filesystem::exists(dir_.path() / "cards.hangs"); }));
  ::kill(asks.pid(), SIGINT);
  EXPECT_EQ(asks.Wait(), 130);
}

}  // namespace
}  // namespace muster::testing
