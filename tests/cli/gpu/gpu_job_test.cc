// `muster launch` with GPUs.
#include <fmt/core.h>
#include <gmock/gmock-more-matchers.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/cli/gpu/gpu_job_fixture.h"
#include "tests/cli/text/unwrapped.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

class LaunchOnCardsTest : public GpuJobTest {
 protected:
  // The workers report that they run, and end as soon as `go` exists.
  LaunchOnCardsTest() {
    Server(std::string(kListen) + "until:here-1;" + kStarted + "touch:started;until:go;" +
           kSummary + "touch:done;exit:0");
    Workers("until:done;exit:0");
    Worker(0, "touch:here-0;until:done;exit:0");
    Worker(1, "touch:here-1;until:done;exit:0");
  }
  void StartJob(Job& job, const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"launch", config(), "--data", "."};
    arguments.insert(arguments.end(), more.begin(), more.end());
    Start(job, arguments);
    ASSERT_TRUE(Appears("here-0") && Appears("here-1")) << job.OutSoFar();
  }
  Finished RunOn(const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"launch", config(), "--data", "."};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Run(arguments);
  }
  Finished End(Job& job) {
    std::ofstream(Path("go")).flush();
    return job.Finish();
  }
  // Waits until the killed processes are gone.
  bool BecomeIdle(int count) {
    for (int i = 0; i < 100; ++i) {
      if (AreIdle(count)) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return false;
  }
};

TEST_F(LaunchOnCardsTest, EachWorkerSeesItsOwnCardAlone) {
  Cards({"nvlink=A", "pids=1:900 used=1000", "nvlink=A", "nvlink=B"});
  Job job;
  StartJob(job, {"--devices", "auto:2"});
  EXPECT_EQ(VariableOf(WorkerPid(0), "CUDA_VISIBLE_DEVICES"), Uuid(0));
  EXPECT_EQ(VariableOf(WorkerPid(1), "CUDA_VISIBLE_DEVICES"), Uuid(2));
  // Other users of the host see who holds the GPUs.
  std::string said;
  EXPECT_FALSE(AreIdle(2, &said));
  EXPECT_THAT(said, AllOf(HasSubstr("GPU 0: "), HasSubstr("'s launch "), HasSubstr(", since "),
                          HasSubstr(fmt::format("(pid {}, 2 GPUs)", job.pid()))));
  EXPECT_TRUE(AreIdle(1));
  const Finished finished = End(job);
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(finished.out,
              AllOf(HasSubstr("2 workers x "),
                    HasSubstr(fmt::format("  devices        GPU 0 ({}, Fake H100, 83.9 GB)\n",
                                          Uuid(0).substr(0, 12)))));
  EXPECT_THAT(Unwrapped(finished.out),
              HasSubstr("--devices auto:2, 2 of 4 GPUs: idle, joined by NVLink "));
  EXPECT_TRUE(AreIdle(3));
}

TEST_F(LaunchOnCardsTest, WorkersInheritTheLocksAndRunBesideTheirCards) {
  cpu_set_t cores, ours;
  ASSERT_EQ(::sched_getaffinity(0, sizeof ours, &ours), 0);
  int first = 0;
  while (!CPU_ISSET(first, &ours)) ++first;
  Cards({fmt::format("cores={0}-{0} node=0", first), "cores=0-5000 node=0"});
  Job job;
  StartJob(job, {"--devices", "1,0"});
  ASSERT_EQ(::sched_getaffinity(WorkerPid(0), sizeof cores, &cores), 0);
  EXPECT_TRUE(CPU_EQUAL(&cores, &ours));
  ASSERT_EQ(::sched_getaffinity(WorkerPid(1), sizeof cores, &cores), 0);
  EXPECT_EQ(CPU_COUNT(&cores), 1);
  EXPECT_TRUE(CPU_ISSET(first, &cores));
  // "7f…000 prefer:0 …", if the kernel supports memory policies.
  const std::string maps = ReadFile(fmt::format("/proc/{}/numa_maps", WorkerPid(1)));
  if (!maps.empty()) {
    EXPECT_THAT(maps, ::testing::ContainsRegex("prefer[^ ]*:0 "));
  }
  std::string open_files;
  for (const auto& entry :
       std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", WorkerPid(0)))) {
    std::error_code ignored;
    open_files += std::filesystem::read_symlink(entry.path(), ignored).string() + "\n";
  }
  EXPECT_THAT(open_files, AllOf(HasSubstr("muster-gpu-" + Uuid(1) + ".lock"),
                                HasSubstr("muster-gpu-job-"), Not(HasSubstr(Uuid(0)))));
  EXPECT_EQ(End(job).exit_code, 0);
}

TEST_F(LaunchOnCardsTest, PlacementNamesTheCards) {
  Cards({"name=Fake_A100 total=40000", ""});
  Server(std::string(kListen) +
         R"(report:{"started":{"workers":[{"rank":0,"host":"h","pid":1,"threads":1},)"
         R"({"rank":1,"host":"h","pid":2,"threads":1}]}};)" +
         kSummary + "touch:done;exit:0");
  Job job;
  StartJob(job, {"--devices", "1,0", "--log-placement"});
  const Finished finished = End(job);
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(finished.out, ::testing::ContainsRegex("rank +host +pid +device +threads +cores +"
                                                     "memory +name +UUID"));
  EXPECT_THAT(finished.out,
              ::testing::ContainsRegex(" 0 +h +1 +GPU 1 .*83.9 GB +Fake H100 +" + Uuid(1)));
  EXPECT_THAT(finished.out,
              ::testing::ContainsRegex(" 1 +h +2 +GPU 0 .*41.9 GB +Fake A100 +" + Uuid(0)));
}

TEST_F(LaunchOnCardsTest, AGpuForOneProcessIsNotGivenToTwoWorkers) {
  Cards({"mode=3"});
  SetVariable("CUDA_MPS_PIPE_DIRECTORY", Path("mps"));
  const Finished refused = Run(
      {"launch", config(), "--data", ".", "--devices", "0", "--set", "worker.workers_per_gpu=2"});
  EXPECT_EQ(refused.exit_code, 1) << refused.out;
  EXPECT_THAT(Unwrapped(refused.err),
              AllOf(HasSubstr("EXCLUSIVE_PROCESS"), HasSubstr("worker.workers_per_gpu=2")));
  EXPECT_TRUE(AreIdle(1));
  std::filesystem::create_directory(Path("mps"));
  std::ofstream(Path("mps/control")).flush();  // the socket of MPS
  Job job;
  StartJob(job, {"--devices", "0", "--set", "worker.workers_per_gpu=2"});
  EXPECT_EQ(VariableOf(WorkerPid(0), "CUDA_VISIBLE_DEVICES"), Uuid(0));
  EXPECT_EQ(VariableOf(WorkerPid(1), "CUDA_VISIBLE_DEVICES"), Uuid(0));
  EXPECT_EQ(End(job).exit_code, 0);
}

TEST_F(LaunchOnCardsTest, JobsOfTheCpuTakeNoGpu) {
  IdleCards(2);
  for (const auto& [option, value] :
       {std::pair("--devices", "cpu"), std::pair("--set", "worker.convolution=DIRECT")}) {
    Job job;
    StartJob(job, {"--workers", "2", option, value});
    EXPECT_EQ(VariableOf(WorkerPid(0), "CUDA_VISIBLE_DEVICES"), "");
    EXPECT_TRUE(AreIdle(2));
    const Finished finished = End(job);
    EXPECT_EQ(finished.exit_code, 0) << finished.err;
    EXPECT_THAT(finished.out, Not(HasSubstr("  devices ")));
    for (const char* file : {"here-0", "here-1", "go", "done"}) std::filesystem::remove(Path(file));
  }
}

TEST_F(LaunchOnCardsTest, AJobThatSaysNothingTakesAnIdleGpuForEachWorker) {
  Cards({"pids=1:500", "", "", ""});
  Job job;
  StartJob(job, {"--workers", "2"});
  EXPECT_EQ(VariableOf(WorkerPid(0), "CUDA_VISIBLE_DEVICES"), Uuid(1));
  EXPECT_EQ(VariableOf(WorkerPid(1), "CUDA_VISIBLE_DEVICES"), Uuid(2));
  EXPECT_TRUE(AreIdle(1));
  EXPECT_FALSE(AreIdle(2));
  const Finished finished = End(job);
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(Unwrapped(finished.out), AllOf(HasSubstr("1 more is idle (--workers 3 uses all)"),
                                             HasSubstr("--devices cpu")));
}

TEST_F(LaunchOnCardsTest, WithoutANumberOfWorkersItTakesOneGpu) {
  IdleCards(3);
  Server(std::string(kListen) + "until:here-0;" + kStarted + kSummary + "touch:done;exit:0");
  const Finished finished = RunOn({});
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(Unwrapped(finished.out),
              AllOf(HasSubstr("1 worker x 1 thread"), HasSubstr("2 more are idle"),
                    HasSubstr(Uuid(0).substr(0, 12))));
  for (const std::string& visible : {Uuid(2), Uuid(2) + "," + Uuid(1)}) {
    SetVariable("CUDA_VISIBLE_DEVICES", visible);
    std::filesystem::remove(Path("done"));
    const Finished chosen = RunOn({});
    EXPECT_EQ(chosen.exit_code, 0) << chosen.err;
    EXPECT_THAT(Unwrapped(chosen.out),
                AllOf(HasSubstr("1 worker x 1 thread"), HasSubstr(Uuid(2).substr(0, 12))));
  }
}

TEST_F(LaunchOnCardsTest, AGpuThatTheEnvironmentNamesAndIsNotThereIsAnError) {
  IdleCards(1);
  std::ofstream(Path("go")).flush();
  SetVariable("CUDA_VISIBLE_DEVICES", "9");
  EXPECT_EQ(RunOn({}).exit_code, 1);
  EXPECT_EQ(RunOn({"--workers", "2", "--devices", "auto"}).exit_code, 1);
  EXPECT_THAT(RunDirs(), IsEmpty());
  EXPECT_EQ(Run({"doctor"}).exit_code, 1);
  EXPECT_EQ(RunOn({"--workers", "2", "--set", "worker.soft_placement=true"}).exit_code, 0);
  for (const auto& [value, option, device] : {std::tuple("9", "--devices", "cpu"),
                                              {"-1", "--seed", "1"},
                                              {"NoDevFiles", "--seed", "1"}}) {
    SetVariable("CUDA_VISIBLE_DEVICES", value);
    EXPECT_EQ(RunOn({"--workers", "2", option, device}).exit_code, 0) << value;
  }
}

// Programs bring their own CUDA. One with a GPU that no other job may use sees only that; another
// would take GPU 0.
class ProgramOnCardsTest : public GpuJobTest {
 protected:
  ProgramOnCardsTest() {
    std::filesystem::remove(Path("libmuster_cuda.so"));
    IdleCards(3);
    std::ofstream(Path("program.txtpb")) << kConfig;
    Server(std::string(kListen) + "until:seen-1;touch:seen-server;until:go;" + kSummary + "exit:0");
  }
  // What the programs of two ranks and the server see; "unset" if they see all.
  std::vector<std::string> Seen(const std::vector<std::string>& more) {
    Job job;
    std::vector<std::string> words{"launch", Path("program.txtpb"), "--workers", "2"};
    words.insert(words.end(), more.begin(), more.end());
    words.insert(words.end(), {"--", "/bin/sh", "-c", kShowGpu});
    Start(job, words);
    EXPECT_TRUE(Appears("seen-0") && Appears("seen-1") && Appears("seen-server"))
        << job.OutSoFar() << ReadFile(Path("err"));
    std::vector<std::string> seen{ReadFile(Path("seen-0")), ReadFile(Path("seen-1"))};
    idle_ = AreIdle(3) ? 3 : AreIdle(1) ? 1 : 0;
    for (const pid_t pid : Processes()) {
      if (ReadFile(fmt::format("/proc/{}/cmdline", pid)).find("--report-fd") == std::string::npos)
        continue;
      const std::string all = ReadFile(fmt::format("/proc/{}/environ", pid));
      EXPECT_THAT(all, HasSubstr(std::string("CUDA_VISIBLE_DEVICES=") + '\0'));
    }
    job.Signal(SIGKILL);
    (void)job.Finish();
    for (const char* file : {"seen-0", "seen-1", "seen-server"})
      std::filesystem::remove(Path(file));
    return seen;
  }

  static constexpr const char* kConfig =
      "optimizer { type: SGD } learning_rate { base: 0.1 } run { epochs: 1 global_batch: 8 }";
  static constexpr const char* kShowGpu =
      "echo ${CUDA_VISIBLE_DEVICES-unset} > new-$MUSTER_RANK;"
      "mv new-$MUSTER_RANK seen-$MUSTER_RANK;"
      "until [ -e go ]; do sleep 0.01; done";
  int idle_ = 0;
};

TEST_F(ProgramOnCardsTest, EachProcessSeesItsOwnLockedGpuOrNone) {
  EXPECT_THAT(Seen({}), ::testing::ElementsAre(Uuid(0) + "\n", Uuid(1) + "\n"));
  EXPECT_EQ(idle_, 1);
  EXPECT_THAT(Seen({"--devices", "cpu"}), ::testing::ElementsAre("\n", "\n"));
  EXPECT_EQ(idle_, 3);
  EXPECT_THAT(Seen({"--set", "worker.backend=CPU"}), ::testing::ElementsAre("\n", "\n"));
  Cards({"pids=1:500"});  // none is idle
  EXPECT_THAT(Seen({}), ::testing::ElementsAre("\n", "\n"));
}

// A named GPU must not be replaced, but the default allows it, so workers need the setting.
// The workers of another host, which `muster launch -H` reaches by ssh.
TEST_F(ProgramOnCardsTest, AnotherHostTakesAnIdleGpuForEachOfItsWorkers) {
  Cards({"", "pids=1:500", ""});
  std::ofstream(Path("messages"))
      << R"({"job":{"config":")" << kConfig
      << " worker { backend: CUDA threads: 1 program: '/bin/sh' program: '-c' program: '"
      << kShowGpu << R"(' }","token":"t","endpoint":"tcp://127.0.0.1:9",)"
      << R"("folder":")" << Path("") << R"(","environment":[],)"
      << R"("relay":{"used":false,"bind":"","via":""},)"
      << R"("gpus":{"workers":2,"for":"runs/a","wait_s":0}}})"
      << "\n"
      << R"({"start":4,"local_rank":0})"
      << "\n"
      << R"({"start":5,"local_rank":1})"
      << "\n";
  const std::string input = " < <(cat messages; until [ -e go ]; do sleep 0.01; done)";
  Job host;
  Start(host, {"host"}, input);
  ASSERT_TRUE(Appears("seen-4") && Appears("seen-5")) << ReadFile(Path("job-0.err"));
  EXPECT_EQ(ReadFile(Path("seen-4")), Uuid(0) + "\n");
  EXPECT_EQ(ReadFile(Path("seen-5")), Uuid(2) + "\n");
  Job second;
  Start(second, {"host"}, input);
  const Finished refused = second.Finish();
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("launch runs/a"));
  std::ofstream(Path("go")).flush();
  EXPECT_EQ(host.Finish().exit_code, 0);
  EXPECT_TRUE(AreIdle(2));
}

TEST_F(LaunchOnCardsTest, TheWorkersOfANamedGpuAreToldNotToReplaceIt) {
  IdleCards(1);
  Server(std::string(kListen) + "until:here-0;" + kStarted + kSummary + "touch:done;exit:0");
  ASSERT_EQ(RunOn({"--devices", "0"}).exit_code, 0);
  EXPECT_THAT(ReadFile(RunDirs().at(0) + "/config.txtpb"), HasSubstr("soft_placement: false"));
}

TEST_F(LaunchOnCardsTest, AGpuWithMemoryErrorsIsTakenLastAndWithAWarning) {
  Cards({"ecc=3", "ecc=0"});
  Server(std::string(kListen) + "until:here-0;" + kStarted + kSummary + "touch:done;exit:0");
  const Finished other = RunOn({});
  EXPECT_EQ(other.exit_code, 0) << other.err;
  EXPECT_THAT(Unwrapped(other.out),
              AllOf(HasSubstr(Uuid(1).substr(0, 12)), Not(HasSubstr("memory error"))));
  std::filesystem::remove(Path("done"));
  const Finished named = RunOn({"--devices", "0"});
  EXPECT_EQ(named.exit_code, 0) << named.err;
  EXPECT_THAT(Unwrapped(named.out), HasSubstr("3 uncorrected memory errors"));
  EXPECT_THAT(Run({"gpus"}).out, HasSubstr("0  idle, 3 ECC errors  "));
}

TEST_F(LaunchOnCardsTest, TooFewIdleGpusAreAnErrorThatSaysWhatWouldStart) {
  Cards({"", "pids=1:500", ""});
  const Finished finished = RunOn({"--workers", "3"});
  EXPECT_EQ(finished.exit_code, 1);
  EXPECT_THAT(finished.err,
              AllOf(HasSubstr("2 of 3 GPUs are idle (busy: 1)"),
                    HasSubstr("--workers 2 would start now"), HasSubstr("--devices cpu")));
  EXPECT_THAT(RunOn({"--devices", "auto:3"}).err, HasSubstr("--devices auto:2 would start now"));
  EXPECT_THAT(RunOn({"--devices", "0,1"}).err, HasSubstr("--devices 0 would start now"));
  const Finished busy = RunOn({"--devices", "1"});  // not a reason to fall back to the CPU
  EXPECT_EQ(busy.exit_code, 1);
  EXPECT_THAT(busy.err, AllOf(HasSubstr("not enough idle GPUs: expected 1 named GPU"),
                              HasSubstr("computes on it"), HasSubstr("--wait")));
  EXPECT_THAT(RunDirs(), IsEmpty());
}

TEST_F(LaunchOnCardsTest, TheCpuWhereNoGpuIsIdleOrNoBackendIsThere) {
  Cards({"pids=1:500", "pids=1:500"});
  std::ofstream(Path("go")).flush();
  const Finished busy = RunOn({"--workers", "2"});
  EXPECT_EQ(busy.exit_code, 0) << busy.err;
  EXPECT_THAT(Unwrapped(busy.out), AllOf(HasSubstr("none of 2 GPUs is idle"),
                                         HasSubstr("the workers compute on the CPU")));
  IdleCards(2);
  std::filesystem::remove(Path("libmuster_cuda.so"));
  const Finished without = RunOn({"--workers", "2"});
  EXPECT_EQ(without.exit_code, 0) << without.err;
  EXPECT_THAT(Unwrapped(without.out), HasSubstr("2 GPUs here, but this build has no CUDA backend"));
}

// Workers with worker.backend=CUDA and without a GPU of their own would use a busy one.
TEST_F(LaunchOnCardsTest, ABackendThatIsWrittenNeverSharesABusyGpu) {
  std::ofstream(config(), std::ios::app) << "worker { backend: CUDA }\n";
  Cards({"pids=1:500"});
  const Finished busy = Run({"launch", config(), "--data", "."});
  EXPECT_EQ(busy.exit_code, 1) << busy.out;
  EXPECT_THAT(busy.err, HasSubstr("not enough idle"));
  EXPECT_THAT(RunDirs(), IsEmpty());
  Worker(1, "dump:asked;touch:here-1;until:done;exit:0");
  Job job;
  StartJob(job, {"--workers", "2", "--devices", "cpu"});
  EXPECT_EQ(End(job).exit_code, 0);
  EXPECT_THAT(ReadFile(RunDirs().at(0) + "/config.txtpb"), HasSubstr("backend: CPU"));
}

TEST_F(LaunchOnCardsTest, AGpuThatWasNamedAndIsNotThereIsAnError) {
  Cards({});
  std::ofstream(Path("go")).flush();
  EXPECT_EQ(RunOn({"--devices", "0,1"}).exit_code, 1);
  EXPECT_THAT(RunDirs(), IsEmpty());
  EXPECT_EQ(RunOn({"--devices", "0,1", "--workers", "2", "--set", "worker.soft_placement=true"})
                .exit_code,
            0);
}

// The saved config of a run on GPUs has worker.soft_placement=true, although no user set it.
TEST_F(LaunchOnCardsTest, ARunsOwnConfigDoesNotReplaceANamedGpu) {
  IdleCards(2);
  std::ofstream(Path("go")).flush();
  ASSERT_EQ(RunOn({"--workers", "2"}).exit_code, 0);
  const std::string own = RunDirs().at(0) + "/config.txtpb";
  EXPECT_THAT(ReadFile(own), HasSubstr("soft_placement: true"));
  Cards({});
  EXPECT_EQ(Run({"launch", own, "--data", ".", "--devices", "0,1"}).exit_code, 1);
}

TEST_F(LaunchOnCardsTest, NoSoftPlacement) {
  const auto run = [&] {
    return Run({"launch", config(), "--data", ".", "--devices", "auto", "--set",
                "worker.soft_placement=false"});
  };
  Cards({});
  EXPECT_EQ(RunOn({"--set", "worker.soft_placement=false"}).exit_code, 1);  // nor by default
  const Finished none = run();
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_THAT(none.err, AllOf(HasSubstr("the NVIDIA driver has no GPUs"),
                              HasSubstr("--devices cpu"), HasSubstr("worker.soft_placement=true")));
}

// A lock would keep others from GPUs on which nothing computes.
TEST_F(LaunchOnCardsTest, GpusThatNothingCouldUseAreNotLocked) {
  IdleCards(2);
  std::filesystem::remove(Path("libmuster_cuda.so"));
  Job job;
  StartJob(job, {"--devices", "auto:2", "--workers", "2"});
  EXPECT_EQ(VariableOf(WorkerPid(0), "CUDA_VISIBLE_DEVICES"), "");
  EXPECT_TRUE(AreIdle(2));
  const Finished finished = End(job);
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(Unwrapped(finished.out),
              AllOf(HasSubstr("--devices auto:2, 2 of 2 GPUs, but this build has no CUDA backend"),
                    HasSubstr("the workers compute on the CPU")));
  for (const auto& devices : std::vector<std::vector<std::string>>{
           {"--devices", "0,1"}, {"--devices", "auto", "--set", "worker.soft_placement=false"}}) {
    const Finished refused = RunOn(devices);
    EXPECT_EQ(refused.exit_code, 1);
    EXPECT_THAT(refused.err,
                AllOf(HasSubstr("this build has no CUDA backend"), HasSubstr("--devices cpu")));
    std::vector<std::string> dry = devices;
    dry.emplace_back("--dry-run");
    EXPECT_EQ(RunOn(dry).exit_code, 1);
  }
  EXPECT_EQ(RunDirs().size(), 1u);
}

TEST_F(LaunchOnCardsTest, WrongWishesAreSaidFirst) {
  IdleCards(2);
  const auto refusal = [&](const std::vector<std::string>& more) {
    const Finished finished = RunOn(more);
    EXPECT_EQ(finished.exit_code, 2);
    EXPECT_EQ(std::count(finished.err.begin(), finished.err.end(), '\n'), 1) << finished.err;
    return finished.err;
  };
  EXPECT_THAT(refusal({"--devices", "2"}), HasSubstr("there is no GPU 2; expected any of 0 ("));
  EXPECT_THAT(refusal({"--devices", "gpu"}),
              HasSubstr("--devices gpu: worker.devices: expected auto"));
  EXPECT_THAT(refusal({"--devices", "auto", "--set", "worker.devices=cpu"}),
              HasSubstr("change the same setting"));
  EXPECT_THAT(refusal({"--devices", "auto:2", "--set", "run.slices=1"}),
              HasSubstr("1 slice cannot keep 2 workers busy"));
  EXPECT_THAT(refusal({"--devices", "0", "--set", "worker.workers_per_gpu=3", "--set",
                       "worker.gpu_memory_fraction=0.5"}),
              HasSubstr("expected at most 0.333333"));
  EXPECT_THAT(refusal({"--wait", "soon"}), HasSubstr("--wait: expected a number"));
}

TEST_F(LaunchOnCardsTest, ItsLocksEndWithItHoweverItEnds) {
  IdleCards(2);
  for (const bool kill_worker : {false, true}) {
    Job job;
    StartJob(job, {"--devices", "auto:2"});
    EXPECT_FALSE(AreIdle(1));
    ::kill(kill_worker ? WorkerPid(1) : job.pid(), SIGKILL);
    (void)job.Finish();
    EXPECT_TRUE(BecomeIdle(2));
    for (const char* file : {"here-0", "here-1"}) std::filesystem::remove(Path(file));
  }
}

TEST_F(LaunchOnCardsTest, AWaitCanBeStopped) {
  Cards({"pids=1:500"});
  Job job;
  Start(job, {"launch", config(), "--data", ".", "--devices", "auto", "--wait"});
  for (int i = 0; i < 1000 && job.OutSoFar().empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  job.Signal(SIGINT);
  const Finished finished = job.Finish();
  EXPECT_EQ(finished.exit_code, 130);
  EXPECT_THAT(finished.err, HasSubstr("stopped by SIGINT before the job had its GPUs"));
  EXPECT_THAT(RunDirs(), IsEmpty());
}

TEST_F(LaunchOnCardsTest, AJobEndsAlthoughTheDriverHangs) {
  for (const bool waits : {false, true}) {  // for the plan, or for busy GPUs with signals blocked
    Cards({waits ? "pids=1:500" : "hang=init"});
    Job job;
    Start(job, {"launch", config(), "--data", ".", "--devices", "auto", "--wait"});
    if (waits) {
      for (int i = 0; i < 1000 && job.OutSoFar().empty(); ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      Cards({"hang=memory"});
    }
    ASSERT_TRUE(Appears("cards.hangs"));
    job.Signal(SIGINT);
    EXPECT_EQ(job.Finish().exit_code, 130);
    EXPECT_TRUE(NoProcessLeft());
    std::filesystem::remove(Path("cards.hangs"));
  }
}

TEST_F(LaunchOnCardsTest, ADryRunTakesNone) {
  IdleCards(2);
  Workers(R"(print:{"what":"weights","bytes":7000000,"holder":"server"};exit:0)");
  Worker(1,
         "dump:asked;"
         R"(print:{"what":"weights","bytes":7000000,"holder":"server"};exit:0)");
  const Finished finished =
      Run({"launch", config(), "--data", ".", "--devices", "auto:2", "--dry-run"});
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(finished.out, AllOf(HasSubstr("  devices        --devices auto:2, 2 of 2 GPUs\n"),
                                  HasSubstr("2 workers x ")));
  // The worker reports the memory of the last rank for the whole number of workers.
  EXPECT_THAT(ReadFile(Path("asked")), HasSubstr("  workers: 2\n"));
}

}  // namespace
}  // namespace muster::testing
