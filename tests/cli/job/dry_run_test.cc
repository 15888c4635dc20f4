// `muster launch --dry-run`, with a stand-in for the worker that reports its memory.
#include <gmock/gmock-more-matchers.h>

#include <filesystem>

#include "tests/cli/job/job_fixture.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class DryRunTest : public JobTest {
 protected:
  void ExpectFailure(int code, const std::string& message) {
    const Finished finished = RunLaunch({"--dry-run", "--set", "deadlines.start_s=1"});
    EXPECT_EQ(finished.exit_code, code) << finished.out;
    EXPECT_THAT(finished.out, IsEmpty());
    EXPECT_THAT(finished.err, AllOf(HasSubstr("muster: error: "), HasSubstr(message)));
    EXPECT_TRUE(NoProcessLeft());
    EXPECT_THAT(RunDirs(), IsEmpty());
  }
};

TEST_F(DryRunTest, ShowsWhatTheWorkerSays) {
  Workers("dump:" + Path("words") +
          R"(;print:{"what":"activations","bytes":5000000,"holder":"process"})"
          R"(;print:{"what":"columns","bytes":9000000,"holder":"card"})"
          R"(;print:{"what":"weights","bytes":7000000,"holder":"server"};exit:0)");
  const Finished finished = RunLaunch({"--dry-run", "--seed", "12"});
  EXPECT_EQ(finished.exit_code, 0);
  EXPECT_THAT(finished.err, IsEmpty());
  EXPECT_THAT(finished.out, AllOf(HasSubstr("each worker, about                 12.0 MB"),
                                  HasSubstr("activations                      5.00 MB"),
                                  HasSubstr("weights                          7.00 MB"),
                                  HasSubstr("total, shared parts counted once"),
                                  HasSubstr("on the GPU, for each worker        9.00 MB"),
                                  HasSubstr("columns                          9.00 MB")));
  // It gets the job's settings, and the rank with the most slices.
  EXPECT_THAT(ReadFile(Path("words")), AllOf(HasSubstr("\nmemory\n"), HasSubstr("--rank\n1\n"),
                                             HasSubstr("seed: 12\n"), HasSubstr("workers: 2\n")));
}

TEST_F(DryRunTest, OfAProgramItShowsWhatIsKnown) {
  std::vector<std::string> words{"launch", "--workers", "2", "--dry-run", "--", "sh", "train.sh"};
  const Finished finished = Run(words);
  EXPECT_EQ(finished.exit_code, 0);
  EXPECT_THAT(finished.err, IsEmpty());
  EXPECT_THAT(finished.out, AllOf(HasSubstr("/sh train.sh"), HasSubstr("as the program says"),
                                  HasSubstr("2 ... 3"), HasSubstr("run directory  runs/"),
                                  HasSubstr("Only the program knows its variables, data, batch, "
                                            "epochs and learning rate.\n")));
  words.insert(words.begin() + 3, {"--epochs", "3", "--set", "run.global_batch=64", "--set",
                                   "learning_rate.base=0.1"});
  EXPECT_THAT(Run(words).out, AllOf(HasSubstr("3 epochs"),
                                    HasSubstr("Only the program knows its variables and data.\n")));
  words.end()[-2] = "no-such-program";
  EXPECT_EQ(Run(words).exit_code, 2);
  EXPECT_TRUE(NoProcessLeft());
  EXPECT_THAT(RunDirs(), IsEmpty());
}

TEST_F(DryRunTest, DataThatARunCouldNotReadEndIt) {
  Workers(R"(print:{"what":"weights","bytes":7000000,"holder":"server"};exit:0)");
  std::filesystem::resize_file(Path("data_batch_2.bin"), 100);
  const Finished finished = RunLaunch({"--dry-run"});
  EXPECT_EQ(finished.exit_code, 3);
  EXPECT_THAT(finished.err, AllOf(HasSubstr("a run would fail: "), HasSubstr("data_batch_2")));
  EXPECT_THAT(finished.out, HasSubstr("total, shared parts counted once"));
}

// They need no data.dir.
TEST_F(DryRunTest, MadeUpDataThatCannotBeSplitEndIt) {
  Workers(R"(print:{"what":"weights","bytes":7000000,"holder":"server"};exit:0)");
  const Finished finished =
      Run({"launch", config(), "--dry-run", "--set", "data.format=SYNTHETIC", "--set",
           "data.synthetic={ height: 32 width: 32 channels: 3 classes: 10 }", "--set",
           "data.validation_fraction=0.99999"});
  EXPECT_EQ(finished.exit_code, 3);
  EXPECT_THAT(finished.err, AllOf(HasSubstr("a run would fail: "), HasSubstr("validation")));
}

TEST_F(DryRunTest, AJobThatCannotFitIsNamed) {
  Workers(R"(print:{"what":"evaluation","bytes":1e16,"holder":"process"};exit:0)");
  const Finished finished = RunLaunch({"--dry-run"});
  EXPECT_EQ(finished.exit_code, 2);
  EXPECT_THAT(finished.err, AllOf(HasSubstr("a run would fail: the job needs at least 20.0 PB"),
                                  HasSubstr("10.0 PB for each of 2 workers")));
}

TEST_F(DryRunTest, TheWorkersErrorAndExitCodeComeThrough) {
  Workers("say:2026-01-01 10:00:00.000 worker-1 error: layer conv1: no such kernel;exit:4");
  ExpectFailure(4, "muster: error: layer conv1: no such kernel");
}

TEST_F(DryRunTest, AWorkerThatIsKilledIsNamed) {
  Workers("signal:9");
  ExpectFailure(6, "muster-worker was killed by signal 9");
}

TEST_F(DryRunTest, AWorkerThatHangsIsStopped) {
  Workers("");
  ExpectFailure(5, "muster-worker did not end within 1 s");
}

TEST_F(DryRunTest, AWorkerOfAnotherBuildIsRecognised) {
  Workers(R"(print:{"what":"activations"};exit:0)");
  ExpectFailure(1, "from the same build?");
}

}  // namespace
}  // namespace muster::testing
