// Successful jobs.
#include <gmock/gmock-more-matchers.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "tests/cli/job/job_fixture.h"
#include "tests/cli/text/unwrapped.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

class JobRunTest : public JobTest {
 protected:
  // A server that completes a run, and workers that then end.
  void GoodJob(const std::string& before_summary = "") {
    Server(std::string(kListen) + kStarted + kProgress + before_summary + kSummary +
           "touch:done;exit:0");
    Workers("until:done;exit:0");
  }
};

TEST_F(JobRunTest, HeaderProgressAndSummary) {
  GoodJob(
      R"(report:{"log":{"at":{"step":57,"epoch":0.15},"measured":{"train_loss":1.9,"images_per_second":1200}}};)"
      R"(report:{"evaluation":{"at":{"step":391,"epoch":1},"test":{"accuracy":0.55,"loss":1.2}}};)");
  Finished finished = RunLaunch({"--epochs", "10"});
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(finished.err, IsEmpty());
  EXPECT_THAT(
      finished.out,
      AllOf(HasSubstr("tiny, 2 layers, 17,290 parameters"), HasSubstr("2 workers x "),
            HasSubstr("128 images (global_batch) = 2 workers x 64"), HasSubstr("cut into 8 slices"),
            HasSubstr("10 epochs"), HasSubstr("Started: 50,000 training images")));
  EXPECT_THAT(finished.out,
              AllOf(HasSubstr("step    57/3,910"), HasSubstr("test accuracy 55.00 %"),
                    HasSubstr("71.32 %, best 71.50 %"), HasSubstr("1,217 images/s"),
                    HasSubstr("100 ms: compute 80 %"), HasSubstr("00112233445566aa")));
  EXPECT_THAT(finished.out, Not(HasSubstr("\x1b")));

  ASSERT_THAT(RunDirs(), SizeIs(1));
  for (const char* file : {"config.txtpb", "server.log", "worker-0.log", "worker-1.log"}) {
    EXPECT_TRUE(std::filesystem::exists(RunDirs()[0] + "/" + file)) << file;
  }
  EXPECT_TRUE(NoProcessLeft());
}

TEST_F(JobRunTest, LaunchingFromARunDirectoryRepeatsTheRunInANewOne) {
  GoodJob();
  ASSERT_EQ(RunLaunch({"--seed", "7"}).exit_code, 0);
  ASSERT_THAT(RunDirs(), SizeIs(1));
  std::string first = ReadFile(RunDirs()[0] + "/config.txtpb");
  std::ofstream(RunDirs()[0] + "/metrics.jsonl") << "{}\n";
  EXPECT_THAT(first, HasSubstr("seed: 7"));

  Finished again = Run({"launch", RunDirs()[0] + "/config.txtpb"});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  ASSERT_THAT(RunDirs(), SizeIs(2));
  std::string second = ReadFile(RunDirs()[1] + "/config.txtpb");
  size_t at = second.find(RunDirs()[1]);
  ASSERT_NE(at, std::string::npos);
  EXPECT_EQ(second.replace(at, RunDirs()[1].size(), RunDirs()[0]), first);
}

TEST_F(JobRunTest, TheTokenIsNowhereToBeSeen) {
  Server(std::string("dump:server;") + kListen + "until:go;" + kSummary + "exit:0");
  Workers("until:go;exit:0");
  for (int rank : {0, 1}) {
    Worker(rank, "dump:worker" + std::to_string(rank) + ";until:go;exit:0");
  }
  Job job;
  Launch(job);
  ASSERT_TRUE(Appears("server") && Appears("worker0") && Appears("worker1"));
  std::string token = ReadFile(Path("server")).substr(0, 32);
  EXPECT_EQ(token.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(ReadFile(Path("worker0")).substr(0, 32), token);
  EXPECT_EQ(ReadFile(Path("worker1")).substr(0, 32), token);

  EXPECT_THAT(Processes(), SizeIs(4));
  for (pid_t pid : Processes()) {
    std::string process = "/proc/" + std::to_string(pid);
    EXPECT_THAT(ReadFile(process + "/cmdline"), Not(HasSubstr(token)));
    EXPECT_THAT(ReadFile(process + "/environ"), Not(HasSubstr(token)));
  }
  for (const auto& file : std::filesystem::directory_iterator(RunDirs().at(0))) {
    EXPECT_THAT(ReadFile(file.path()), Not(HasSubstr(token)));
  }
  std::ofstream(Path("go")).flush();
  EXPECT_THAT(job.Finish().out, Not(HasSubstr(token)));
}

TEST_F(JobRunTest, TwoJobsOfTheSameSecondNeverMeet) {
  Workers("until:go;exit:0");
  Job first, second;
  Server(std::string("dump:server-a;") + kListen + "until:go;" + kSummary + "exit:0");
  Launch(first);
  Server(std::string("dump:server-b;") + kListen + "until:go;" + kSummary + "exit:0");
  Launch(second);
  ASSERT_TRUE(Appears("server-a") && Appears("server-b"));
  EXPECT_NE(ReadFile(Path("server-a")),
            ReadFile(Path("server-b")));  // both the token and the endpoint differ
  std::ofstream(Path("go")).flush();
  EXPECT_EQ(first.Finish().exit_code, 0);
  EXPECT_EQ(second.Finish().exit_code, 0);
  EXPECT_THAT(RunDirs(), SizeIs(2));
}

TEST_F(JobRunTest, WorkersGetTheServersEndpoint) {
  Server(
      "dump:server;report:{\"listening\":{\"endpoint\":\"tcp://127.0.0.1:4242\"}};"
      "until:worker1;" +
      std::string(kSummary) + "exit:0");
  Worker(0, "exit:0");
  Worker(1, "dump:worker1;exit:0");
  EXPECT_EQ(RunLaunch({"--set", "cluster.transport=TCP"}).exit_code, 0);
  EXPECT_THAT(ReadFile(Path("server")), HasSubstr("--endpoint\ntcp://127.0.0.1:*\n"));
  EXPECT_THAT(ReadFile(Path("worker1")),
              AllOf(HasSubstr("--endpoint\ntcp://127.0.0.1:4242\n"), HasSubstr("--rank\n1\n")));
}

TEST_F(JobRunTest, AClosedStandardOutputDoesNotEndTheRun) {
  std::string many;
  for (int i = 0; i < 5; ++i) {
    many += R"(report:{"log":{"at":{"step":57},"measured":{"train_loss":1.9}}};sleep:0.05;)";
  }
  GoodJob(many);
  Job job;
  Launch(job, {}, " | head -1; exit ${PIPESTATUS[0]}");
  Finished finished = job.Finish();
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(finished.err, HasSubstr("standard output was closed"));
}

// The run completes, because its results are in its directory, but it counts as failed.
TEST_F(JobRunTest, AFullStandardOutputIsAFailure) {
  GoodJob();
  Job job;
  Launch(job, {"--run-dir", Path("run")}, " > /dev/full");
  const Finished finished = job.Finish();
  EXPECT_EQ(finished.exit_code, 1);
  EXPECT_THAT(finished.err,
              AllOf(HasSubstr("muster: error: standard output could not be written: No space left "
                              "on device; the run's results are in "),
                    Not(HasSubstr("closed"))));
  EXPECT_TRUE(std::filesystem::exists(Path("run/config.txtpb")));
}

// All runs of a series complete.
TEST_F(JobRunTest, AFullStandardOutputDoesNotEndASeries) {
  Server(std::string(kListen) + kStarted + kSummary + "exit:0");
  Workers("sleep:0.3;exit:0");
  Job job;
  Launch(job, {"--run-dir", Path("run"), "--seed", "3", "--repeat", "2"}, " > /dev/full");
  const Finished finished = job.Finish();
  EXPECT_EQ(finished.exit_code, 1);
  EXPECT_THAT(ReadFile(Path("run/repeat.json")), AllOf(HasSubstr("seed-3"), HasSubstr("seed-4")))
      << finished.err;
}

TEST_F(JobRunTest, FilesThatAreAllShorterAreALineOfTheHeader) {
  GoodJob();
  EXPECT_THAT(Unwrapped(RunLaunch().out),
              HasSubstr("expected 10,000 images per training file as published, found 3 in each"));
}

TEST_F(JobRunTest, DataThatNobodyReadsAreALineOfTheHeader) {
  GoodJob();
  const Finished finished = RunLaunch({"--set", "data.format=SYNTHETIC"});  // and --data .
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(Unwrapped(finished.out),
              AllOf(HasSubstr(" no effect data.dir=\""), HasSubstr("needs data.format=")));
}

TEST_F(JobRunTest, StandardDescriptorsMayBeMissing) {
  GoodJob();
  Job job;
  Launch(job, {}, " <&- >&- 2>&-");
  EXPECT_EQ(job.Finish().exit_code, 0);
}

// A report in two pieces, invalid lines, and unknown kinds and fields of a newer server.
TEST_F(JobRunTest, NonsenseInTheReportsIsLeftOutAndSaid) {
  GoodJob(
      "raw:{\"prog;sleep:0.05;raw:ress\":{}}\n;report:nonsense;report:[1,2];"
      "report:{\"newer\":{\"a\":1}};report:{\"warning\":{\"message\":\"hm\",\"newer\":[]}};"
      "report:{\"progress\":7};flood:20;");
  const Finished finished = RunLaunch();
  EXPECT_EQ(finished.exit_code, 0);
  EXPECT_THAT(finished.out,
              AllOf(HasSubstr("Warning: cannot read an event of the server (1 so far): "),
                    HasSubstr("got 8 bytes: nonsense\n"), HasSubstr("got 5 bytes: [1,2]\n"),
                    HasSubstr("got 5000 bytes: xxxx"), HasSubstr("got 14 bytes: {\"progress\":7}"),
                    Not(HasSubstr("newer\"")), HasSubstr("Warning: hm\n")));
}

TEST_F(JobRunTest, MissingRanksAreNamed) {
  Server(std::string(kListen) + R"(report:{"waiting":{"missing":[1],"elapsed_s":5}};)" + kStarted +
         kSummary + "touch:done;exit:0");
  Workers("until:done;exit:0");
  EXPECT_THAT(RunLaunch().out, HasSubstr("Waiting for rank 1: 5.0 s of at most 60 s"));
}

TEST_F(JobRunTest, AnIgnoredSigchldIsOfNoConsequence) {
  GoodJob();
  ::signal(SIGCHLD, SIG_IGN);  // inherited by the launcher
  Job job;
  Launch(job);
  ::signal(SIGCHLD, SIG_DFL);
  EXPECT_EQ(job.Finish().exit_code, 0);
}

}  // namespace
}  // namespace muster::testing
