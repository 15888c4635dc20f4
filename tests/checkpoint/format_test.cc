// Names and files of checkpoints, and every kind of damage.
#include <fmt/core.h>
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include <cstring>

#include "common/base/error.h"
#include "common/checkpoint/run_mark.h"
#include "common/checkpoint/state_file.h"
#include "tests/checkpoint/some_run.h"

namespace muster {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::kOtherRun;
using testing::kSomeRun;
using testing::ReadBytes;
using testing::SomeRun;
using testing::WriteBytes;

constexpr CheckpointName kOlder{.generation = 1, .step = 7}, kNewer{.generation = 1, .step = 12};

template <typename Function>
std::string ErrorOf(ExitCode code, const Function& function) {
  try {
    function();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "";
}

TEST(CheckpointNameTest, IsReadAsItIsWritten) {
  EXPECT_EQ((CheckpointName{2, 120}.Text()), "step-00000120-g2");
  for (const CheckpointName& name : {CheckpointName{1, 0}, CheckpointName{12, 123456789, true}}) {
    EXPECT_EQ(ParseCheckpointName(name.Text()), name);
  }
  for (const char* other : {"", "step-", "step-00000120", "step-120-g2", "step-00000120-g2.partial",
                            "step-00000120-g-2", "step-00000120-g2-evaluated2", "step-00000120-g02",
                            "step-99999999999999999999-g1", "step-00000001-g9223372036854775807"}) {
    EXPECT_EQ(ParseCheckpointName(other), std::nullopt) << other;
  }
}

// A later server may have resumed from an older step. Its checkpoints are newer.
TEST(CheckpointNameTest, AgeIsTheServersThenTheSteps) {
  EXPECT_LT((CheckpointName{1, 90}), (CheckpointName{2, 40}));
  EXPECT_LT((CheckpointName{1, 40}), (CheckpointName{1, 90}));
  EXPECT_LT((CheckpointName{1, 40}), (CheckpointName{1, 40, true}));
}

checkpoint::State SomeState() {
  checkpoint::State state;
  state.set_step(7);
  state.set_config("run { steps: 9 }");
  state.mutable_progress()->mutable_total()->set_loss(0.1);
  return state;
}

TEST(StateFileTest, EveryByteMatters) {
  const std::string bytes = StateFileBytes(SomeState());
  EXPECT_EQ(ParseStateFile("f", bytes).SerializeAsString(), SomeState().SerializeAsString());
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string flipped = bytes;
    flipped[i] = static_cast<char>(flipped[i] ^ 0x10);
    EXPECT_NE(ErrorOf(ExitCode::kData, [&] { (void)ParseStateFile("f", flipped); }), "") << i;
    EXPECT_NE(ErrorOf(ExitCode::kData, [&] { (void)ParseStateFile("f", bytes.substr(0, i)); }), "")
        << i;
  }
  EXPECT_NE(ErrorOf(ExitCode::kData, [&] { (void)ParseStateFile("f", bytes + "x"); }), "");
}

std::string OfNextVersion(std::string bytes) {
  bytes[8] = static_cast<char>(kCheckpointFormat + 1);
  const auto check = static_cast<uint32_t>(XXH3_64bits(bytes.data(), 12));
  std::memcpy(&bytes[12], &check, sizeof check);
  return bytes;
}

TEST(StateFileTest, ANewerVersionIsRefusedByName) {
  const std::string bytes = OfNextVersion(StateFileBytes(SomeState()));
  EXPECT_THAT(
      ErrorOf(ExitCode::kUsage, [&] { (void)ParseStateFile("f/state.pb", bytes); }),
      ::testing::AllOf(HasSubstr("f/state.pb: has version 2"), HasSubstr("only reads up to 1")));
}

class DamageTest : public ::testing::Test {
 protected:
  DamageTest() {
    run_.Write(kOlder);
    run_.Write(kNewer);
    EXPECT_EQ(run_.Newest(), kNewer);
  }
  fs::path Newer(const char* file) const { return fs::path(run_.Folder(kNewer)) / file; }
  fs::path Older(const char* file) const { return fs::path(run_.Folder(kOlder)) / file; }
  // The error about the newer checkpoint after the older one has been chosen.
  std::string Said() const {
    const ChosenCheckpoint chosen = ChooseCheckpoint(run_.dir());
    EXPECT_TRUE(chosen.reader);
    EXPECT_EQ(chosen.name, kOlder);
    if (chosen.damaged.size() != 1) return "";
    EXPECT_EQ(chosen.damaged[0].name, kNewer);
    return chosen.damaged[0].why;
  }
  SomeRun run_;
};

TEST_F(DamageTest, EveryFlipIsNoticed) {
  for (const char* file : {kStateFile, kTensorFile}) {
    const std::string bytes = ReadBytes(Newer(file));
    for (size_t i = 0; i < bytes.size(); i += i < 300 ? 1 : 97) {
      std::string flipped = bytes;
      flipped[i] = static_cast<char>(flipped[i] ^ 1);
      WriteBytes(Newer(file), flipped);
      ASSERT_THAT(Said(), HasSubstr(Newer(file))) << file << " " << i;
    }
    WriteBytes(Newer(file), bytes);
  }
  EXPECT_EQ(run_.Newest(), kNewer);
}

// The checksums are right: a program that knows the format wrote these numbers.
TEST_F(DamageTest, NumbersThatNoRunComesTo) {
  const std::pair<const char*, void (*)(checkpoint::State&)> kChanges[] = {
      {"updates", [](checkpoint::State& state) { state.set_updates(-1); }},
      {"updates", [](checkpoint::State& state) { state.set_updates(13); }},
      {"skipped", [](checkpoint::State& state) { state.set_skipped_in_a_row(-5); }},
      {"samples",
       [](checkpoint::State& state) {
         state.mutable_progress()->mutable_total()->set_samples(INT64_MAX);
       }},
      {"reductions",
       [](checkpoint::State& state) { state.mutable_decisions()->set_reductions(-1); }},
      {"metrics.jsonl", [](checkpoint::State& state) { state.mutable_metrics()->set_bytes(-1); }}};
  const checkpoint::State whole = ParseStateFile("f", ReadBytes(Newer(kStateFile)));
  for (const auto& [said, change] : kChanges) {
    checkpoint::State changed = whole;
    change(changed);
    WriteBytes(Newer(kStateFile), StateFileBytes(changed));
    EXPECT_THAT(Said(), ::testing::AllOf(HasSubstr(Newer(kStateFile)), HasSubstr(said)));
  }
}

TEST_F(DamageTest, EveryTruncationIsNoticed) {
  for (const char* file : {kStateFile, kTensorFile}) {
    const std::string bytes = ReadBytes(Newer(file));
    for (size_t i = 0; i < bytes.size(); i += 211) {
      WriteBytes(Newer(file), bytes.substr(0, i));
      ASSERT_THAT(Said(), HasSubstr(Newer(file))) << file << " " << i;
    }
    fs::remove(Newer(file));
    ASSERT_THAT(Said(), HasSubstr(Newer(file)));
    WriteBytes(Newer(file), bytes + "more");
    ASSERT_THAT(Said(), HasSubstr(Newer(file)));
    WriteBytes(Newer(file), bytes);
  }
}

TEST_F(DamageTest, FilesOfAnotherCheckpoint) {
  fs::copy_file(Older(kTensorFile), Newer(kTensorFile), fs::copy_options::overwrite_existing);
  EXPECT_THAT(Said(), HasSubstr("another checkpoint: its checkpoint is step-00000007-g1"));
  fs::copy_file(Older(kStateFile), Newer(kStateFile), fs::copy_options::overwrite_existing);
  EXPECT_THAT(Said(),
              HasSubstr("holds the state of step-00000007-g1, expected that of step-00000012"));
}

TEST_F(DamageTest, TensorsOfAnotherRun) {
  SomeRun other;
  CheckpointToWrite what = other.At(kNewer);
  what.state.set_run_id(kOtherRun);
  WriteCheckpoint(what, other.image());
  fs::copy_file(other.Folder(kNewer) + "/" + kTensorFile, Newer(kTensorFile),
                fs::copy_options::overwrite_existing);
  EXPECT_THAT(Said(), HasSubstr(std::string("another checkpoint: its run is ") + kOtherRun));
}

// All of it, with a correct name.
TEST_F(DamageTest, ACheckpointOfAnotherRun) {
  fs::remove(fs::path(CheckpointsFolder(run_.dir())) / kRunIdFile);
  SomeRun other;
  CheckpointToWrite what = other.At(kNewer);
  what.state.set_run_id(kOtherRun);
  fs::remove_all(run_.Folder(kNewer));
  what.run_dir = run_.dir();
  WriteCheckpoint(what, other.image());
  WriteBytes(fs::path(run_.dir()) / kRunIdFile, kSomeRun);
  const auto is_named = HasSubstr(
      fmt::format("belongs to another run: expected run {}, got {}", kSomeRun, kOtherRun));
  EXPECT_THAT(Said(), is_named);
  RequireOwnCheckpoints(run_.dir());  // the older one is its own
  // Either copy of the run ID suffices if the other one is missing or unreadable.
  WriteBytes(fs::path(CheckpointsFolder(run_.dir())) / kRunIdFile, "nonsense");
  EXPECT_THAT(Said(), is_named);
  WriteBytes(fs::path(CheckpointsFolder(run_.dir())) / kRunIdFile, kSomeRun);
  fs::remove(fs::path(run_.dir()) / kRunIdFile);
  EXPECT_THAT(Said(), is_named);
}

// A whole folder of checkpoints, with their run ID.
TEST_F(DamageTest, CheckpointsOfAnotherRunAreRefused) {
  SomeRun other;
  CheckpointToWrite what = other.At(kNewer);
  what.state.set_run_id(kOtherRun);
  what.state.set_config("run { dir: \"/runs/other\" }");
  WriteCheckpoint(what, other.image());
  EXPECT_EQ(RunIdIn(other.dir()), kOtherRun);
  RequireOwnCheckpoints(other.dir());
  fs::remove_all(CheckpointsFolder(run_.dir()));
  fs::copy(CheckpointsFolder(other.dir()), CheckpointsFolder(run_.dir()),
           fs::copy_options::recursive);
  const auto refuse = [&] { RequireOwnCheckpoints(run_.dir()); };
  EXPECT_THAT(ErrorOf(ExitCode::kData, refuse),
              ::testing::AllOf(HasSubstr(run_.dir()), HasSubstr(kSomeRun), HasSubstr(kOtherRun),
                               HasSubstr("begun in /runs/other")));
  // A copy of the checkpoints without the run can be resumed anywhere.
  fs::remove(fs::path(run_.dir()) / kRunIdFile);
  refuse();
  EXPECT_EQ(run_.Newest(), kNewer);
}

// The run's own checkpoints are there, but it could not write more.
TEST_F(DamageTest, AFolderThatAnotherRunHasClaimedIsRefused) {
  RequireOwnFolder(run_.dir());
  WriteBytes(fs::path(CheckpointsFolder(run_.dir())) / kRunIdFile, kOtherRun);
  RequireOwnCheckpoints(run_.dir());
  const auto refuse = [&] { RequireOwnFolder(run_.dir()); };
  EXPECT_THAT(
      ErrorOf(ExitCode::kData, refuse),
      ::testing::AllOf(HasSubstr(fmt::format("expected run {} ({}/run_id)", kSomeRun, run_.dir())),
                       HasSubstr(fmt::format("got run {}", kOtherRun)),
                       HasSubstr(fmt::format("remove {}/run_id", CheckpointsFolder(run_.dir())))));
  fs::remove(fs::path(CheckpointsFolder(run_.dir())) / kRunIdFile);
  refuse();
}

// The file was damaged by an editor or a disk.
TEST_F(DamageTest, ARunsNumberThatIsNoneIsWrittenAgain) {
  WriteBytes(fs::path(CheckpointsFolder(run_.dir())) / kRunIdFile, "");
  fs::remove(fs::path(run_.dir()) / kRunIdFile);
  EXPECT_EQ(run_.Newest(), kNewer);
  run_.Write({.generation = 1, .step = 20});
  EXPECT_EQ(RunIdIn(CheckpointsFolder(run_.dir())), kSomeRun);
  EXPECT_EQ(RunIdIn(run_.dir()), kSomeRun);
}

// A run never restarts silently.
TEST_F(DamageTest, NoneThatIsWhole) {
  WriteBytes(Newer(kStateFile), "");
  WriteBytes(Older(kTensorFile), "");
  const ChosenCheckpoint chosen = ChooseCheckpoint(run_.dir());
  EXPECT_FALSE(chosen.reader);
  EXPECT_THAT(ErrorOf(ExitCode::kData, [&] { NoCheckpoint(run_.dir(), chosen.damaged); }),
              ::testing::AllOf(HasSubstr("no intact checkpoint"), HasSubstr(Newer(kStateFile)),
                               HasSubstr(Older(kTensorFile))));
}

// Skipping it would lose its contents.
TEST_F(DamageTest, ANewerVersionIsNotPassedOver) {
  WriteBytes(Newer(kStateFile), OfNextVersion(ReadBytes(Newer(kStateFile))));
  EXPECT_THAT(ErrorOf(ExitCode::kUsage, [&] { (void)ChooseCheckpoint(run_.dir()); }),
              HasSubstr("version 2"));
}

TEST_F(DamageTest, LeftoversAreNoCheckpoints) {
  const CheckpointName later{.generation = 1, .step = 20};
  run_.Write(later);
  fs::rename(run_.Folder(later), run_.Folder(later) + ".partial");
  fs::rename(run_.Folder(kOlder), run_.Folder(kOlder) + ".removing");
  EXPECT_EQ(run_.Newest(), kNewer);
  RemoveLeftovers(run_.dir());
  const auto left = std::distance(fs::directory_iterator(CheckpointsFolder(run_.dir())), {});
  EXPECT_EQ(left, 2);  // and the run's own ID
}

}  // namespace
}  // namespace muster
