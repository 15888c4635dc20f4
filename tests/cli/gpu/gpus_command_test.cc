// `muster gpus`, `muster gpus run` and what `muster doctor` says of GPUs, the real program.
#include <fmt/core.h>
#include <gmock/gmock-more-matchers.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/gpu/lock_folder.h"
#include "tests/cli/gpu/gpu_job_fixture.h"

namespace muster::testing {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using GpusTest = GpuJobTest;

TEST_F(GpusTest, CardsAndWhoUsesThem) {
  Cards({"total=81559 used=1024 util=37 temp=61 power=412 pci=00000000:3B:00.0",
         fmt::format("used=900 pids={}:900", ::getpid()), "fail=handle:15"});
  const Finished finished = Run({"gpus"});
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(finished.out,
              ContainsRegex("0 +idle +Fake H100 +1,024 +80,535 +81,559 +37 % +61 C +412 "
                            "W +00000000:3B:00.0 +" +
                            Uuid(0) + "\n"));
  EXPECT_THAT(finished.out, ContainsRegex("\n +1 +busy .*" + Uuid(1) + "\n"));
  EXPECT_THAT(finished.out, ContainsRegex("\n +2 +GPU is lost "));
  EXPECT_THAT(finished.out,
              ContainsRegex(fmt::format("1 +{} +[a-z0-9]+ +900 .*cli_job_test", ::getpid())));
}

TEST_F(GpusTest, AsJson) {
  Cards({"util=37", fmt::format("used=900 pids={}:900", ::getpid())});
  const Json json = Json::parse(Run({"gpus", "--json"}).out);
  EXPECT_EQ(json["driver"], "580.65.06");
  ASSERT_EQ(json["gpus"].size(), 2u);
  EXPECT_EQ(json["gpus"][0]["uuid"], Uuid(0));
  EXPECT_EQ(json["gpus"][0]["utilization"], 37);
  EXPECT_EQ(json["gpus"][0]["idle"], true);
  EXPECT_EQ(json["gpus"][1]["idle"], false);
  EXPECT_EQ(json["gpus"][1]["processes"][0]["pid"], ::getpid());
  EXPECT_EQ(json["gpus"][1]["processes"][0]["used_bytes"], 900ull << 20);
}

TEST_F(GpusTest, WithoutADriverAnEmptyList) {
  SetVariable("FAKE_NVML_BROKEN", "1");  // overrides a real NVML
  const Finished finished = Run({"gpus"});
  EXPECT_EQ(finished.exit_code, 0);
  EXPECT_THAT(finished.err, IsEmpty());
  EXPECT_EQ(std::count(finished.out.begin(), finished.out.end(), '\n'), 1) << finished.out;
  const Finished json = Run({"gpus", "--json"});
  EXPECT_EQ(json.exit_code, 0);
  EXPECT_THAT(Json::parse(json.out)["gpus"], IsEmpty());
}

TEST_F(GpusTest, RunGivesACommandItsCardsAndKeepsItsExitCode) {
  Cards({"pids=1:500", "", ""});
  const Finished finished =
      Run({"gpus", "run", "-n", "2", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; exit 7"});
  EXPECT_EQ(finished.exit_code, 7);
  EXPECT_EQ(finished.out, Uuid(1) + "," + Uuid(2) + "\n");
  EXPECT_THAT(finished.err,
              AllOf(HasSubstr("muster: GPU 1 ("), HasSubstr("GPU 2 ("), HasSubstr("idle")));
  // Only that variable differs.
  EXPECT_EQ(Run({"gpus", "run", "--", "env"}).out.find("GOMP_SPINCOUNT"), std::string::npos);
  EXPECT_EQ(Run({"gpus", "run", "--wait", "--", "sh", "-c", "kill -9 $$"}).exit_code, 137);
  // The command is passed on completely.
  EXPECT_EQ(Run({"gpus", "run", "--", "echo", "a", "--", "b"}).out, "a -- b\n");
  EXPECT_EQ(Run({"gpus", "run", "echo", "a", "--", "b"}).exit_code, 2);
  const Finished missing = Run({"gpus", "run", "--", "no-such-command-at-all"});
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_THAT(missing.err, HasSubstr("cannot execute no-such-command-at-all: No such file"));
  EXPECT_TRUE(AreIdle(2));
}

TEST_F(GpusTest, WithoutEnoughIdleCardsTheCommandRunsOnTheCpuIfItMay) {
  Cards({"pids=1:500", "", ""});
  const Finished refused = Run({"gpus", "run", "-n", "3", "--", "true"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("\n  -n 2 would start now"));
  for (const char* count : {"3", "4"}) {
    const Finished finished = Run({"gpus", "run", "-n", count, "--or-cpu", "--", "sh", "-c",
                                   "echo ${CUDA_VISIBLE_DEVICES-unset}; exit 7"});
    EXPECT_EQ(finished.exit_code, 7);
    EXPECT_EQ(finished.out, "\n");
  }
  EXPECT_EQ(Run({"gpus", "run", "--or-cpu", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"}).out,
            Uuid(1) + "\n");
}

TEST_F(GpusTest, TheCommandsChildrenKeepTheCards) {
  IdleCards(1);
  Job job;
  Start(job, {"gpus", "run", "--", "sh", "-c", "(until [ -e go ]; do sleep 0.01; done) & exit 0"});
  EXPECT_EQ(job.Finish().exit_code, 0);
  EXPECT_FALSE(AreIdle(1));
  std::ofstream(Path("go")).flush();
  EXPECT_TRUE(NoProcessLeft(10));
  EXPECT_TRUE(AreIdle(1));
}

TEST_F(GpusTest, WhoHoldsAndWhoWaitsIsShown) {
  IdleCards(1);
  Job holder, waiter;
  Start(holder,
        {"gpus", "run", "--", "sh", "-c", "touch here; until [ -e go ]; do sleep 0.01; done"});
  ASSERT_TRUE(Appears("here"));
  Start(waiter, {"gpus", "run", "--wait", "--", "touch", "second"});
  std::string shown;
  for (int i = 0; i < 500 && shown.find("waits for 1 GPU: touch second") == std::string::npos;
       ++i) {
    shown = Run({"gpus"}).out;
  }
  EXPECT_THAT(shown, AllOf(HasSubstr("0  taken "), HasSubstr("holds it: sh -c touch here"),
                           HasSubstr("waits for 1 GPU: touch second")));
  EXPECT_EQ(::access(Path("second").c_str(), F_OK), -1);
  std::ofstream(Path("go")).flush();
  EXPECT_EQ(holder.Finish().exit_code, 0);
  EXPECT_EQ(waiter.Finish().exit_code, 0);
  EXPECT_TRUE(Appears("second"));
}

TEST_F(GpusTest, AGpuThatIsLockedWithoutATicketIsNotIdle) {
  IdleCards(2);
  const LockFolder folder = LockFolder::OfHost();
  const GpuLock lock = folder.LockGpu(Uuid(0));
  for (const bool removed : {false, true}) {
    if (removed) std::filesystem::remove(folder.File("muster-gpu-" + Uuid(0) + ".lock"));
    EXPECT_THAT(Run({"gpus"}).out,
                AllOf(ContainsRegex("0 +taken .*" + Uuid(0)), ContainsRegex("1 +idle .*" + Uuid(1)),
                      ContainsRegex(fmt::format("its lock is held by .*pid {}", ::getpid()))));
    const Json json = Json::parse(Run({"gpus", "--json"}).out);
    EXPECT_EQ(json["gpus"][0]["idle"], false);
    EXPECT_EQ(json["gpus"][1]["idle"], true);
  }
}

TEST_F(GpusTest, RunTakesOnlyWhatTheEnvironmentLeaves) {
  Cards({"speed=1", "speed=2"});
  const auto visible = [&](const std::string& value) {
    SetVariable("CUDA_VISIBLE_DEVICES", value);
    return Run({"gpus", "run", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"});
  };
  EXPECT_EQ(visible("0").out, Uuid(1) + "\n");  // CUDA lists the faster GPU first
  EXPECT_EQ(visible(Uuid(0)).out, Uuid(0) + "\n");
  const Finished none = visible("");
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_THAT(none.err, HasSubstr("CUDA_VISIBLE_DEVICES=\"\" leaves no GPU"));
}

TEST_F(GpusTest, WrongCommandLines) {
  const auto refusal = [&](const std::vector<std::string>& arguments) {
    const Finished finished = Run(arguments);
    EXPECT_EQ(finished.exit_code, 2);
    EXPECT_THAT(finished.out, IsEmpty());
    return finished.err;
  };
  EXPECT_THAT(refusal({"gpus", "run", "-n", "2"}), HasSubstr("the command is missing"));
  EXPECT_THAT(refusal({"gpus", "run", "-n", "0", "--", "true"}), HasSubstr("from 1 to 1024"));
  EXPECT_THAT(refusal({"gpus", "rum"}), HasSubstr("did you mean 'run'?"));
  EXPECT_THAT(refusal({"gpus", "--", "true"}), HasSubstr("expected no more arguments, got true"));
  IdleCards(1);
  EXPECT_THAT(refusal({"gpus", "run", "-n", "2", "--", "true"}),
              HasSubstr("muster gpus run -n 2: expected at most 1"));
}

// The report of a worker that could open the GPU.
constexpr const char* kOpened =
    R"(print:{"arithmetic":"Fake H100, cuBLAS 13.1, cuDNN 9.2"};exit:0)";

TEST_F(GpusTest, TheDoctorLooksAtGpusAndOpensOne) {
  Cards(
      {"ecc=0", fmt::format("used=900 pids={}:900", ::getpid()), "ecc=3 mode=3", "fail=handle:15"});
  Workers(kOpened);
  const Finished finished = Run({"doctor"});
  EXPECT_EQ(finished.exit_code, 0) << finished.out << finished.err;
  EXPECT_THAT(finished.out, ContainsRegex("ok +GPU driver +NVIDIA 580.65.06\n"));
  EXPECT_THAT(finished.out, ContainsRegex("ok +GPU 0 .*ECC on: idle\n"));
  EXPECT_THAT(finished.out, ContainsRegex(fmt::format("ok +GPU 1 .*pid {}.*busy", ::getpid())));
  EXPECT_THAT(finished.out, ContainsRegex("note +GPU 2 .*3 memory errors.*EXCLUSIVE_PROCESS"));
  EXPECT_THAT(finished.out, ContainsRegex("note +GPU 3 .*GPU is lost"));
  EXPECT_THAT(finished.out,
              ContainsRegex("ok +GPU backend +Fake H100, cuBLAS 13.1, cuDNN 9.2: matches .*\n"));
  EXPECT_TRUE(AreIdle(2));  // its lock was released
}

TEST_F(GpusTest, TheDoctorSaysWhetherAJobWouldStartNow) {
  Cards({"", fmt::format("used=900 pids={}:900", ::getpid())});
  Workers(kOpened);
  const Finished one = Run({"doctor", config(), "--data", ".", "--devices", "auto:1"});
  EXPECT_THAT(one.out, ContainsRegex("ok +job's GPUs .*GPU 0")) << one.err;
  const Finished two = Run({"doctor", config(), "--data", ".", "--devices", "auto:2"});
  EXPECT_EQ(two.exit_code, 1) << two.out;
  EXPECT_THAT(two.out, ContainsRegex("WRONG +job's GPUs "));
  EXPECT_THAT(two.out, ContainsRegex("a run would fail"));
  EXPECT_EQ(Run({"doctor", "--devices", "auto:2"}).exit_code, 1);  // also without a config
  EXPECT_EQ(Run({"doctor", "--devices", "7"}).exit_code, 2);       // no such GPU
  Cards({});
  EXPECT_EQ(Run({"doctor", "--devices", "0"}).exit_code, 1);  // the same as launch
  EXPECT_EQ(Run({"doctor", "--devices", "auto"}).exit_code, 0);
}

TEST_F(GpusTest, TheDoctorSpeaksOfTheBackendAlsoWhereAllGpusAreBusy) {
  Cards({"pids=1:500"});
  const Finished finished = Run({"doctor", config(), "--data", ".", "--devices", "0"});
  EXPECT_EQ(finished.exit_code, 1);
  EXPECT_THAT(finished.out, ContainsRegex("ok +GPU backend +not tested"));
  EXPECT_THAT(finished.out, ContainsRegex("WRONG +job's GPUs .*\n {25,}GPU 0: "));
}

TEST_F(GpusTest, TheDoctorNamesABackendThatDoesNotWork) {
  IdleCards(1);
  Workers("say:2026-01-01 00:00:00.000 worker-0 error: no libcublas.so.13;exit:1");
  const Finished alone = Run({"doctor"});
  EXPECT_EQ(alone.exit_code, 0) << alone.out;  // runs use the CPU
  EXPECT_THAT(alone.out, ContainsRegex("note +GPU backend .*no libcublas.so.13"));
  const Finished job = Run({"doctor", config(), "--data", ".", "--devices", "auto"});
  EXPECT_EQ(job.exit_code, 1);
  EXPECT_THAT(job.out, ContainsRegex("WRONG +GPU backend .*no libcublas.so.13"));
  Workers("exit:8");  // the GPU computes wrong results: no run may start on it
  EXPECT_EQ(Run({"doctor"}).exit_code, 1);
  Cards({});  // a job that asks for GPUs by number only learns what is missing besides a driver
  Workers("say:2026-01-01 00:00:00.000 worker-0 error: no libcublas.so.13;exit:1");
  const Finished none = Run({"doctor", "--devices", "auto"});
  EXPECT_EQ(none.exit_code, 0) << none.out;
  EXPECT_THAT(none.out, ContainsRegex("note +GPU backend .*no libcublas.so.13"));
}

}  // namespace
}  // namespace muster::testing
