// `muster doctor` on machines with problems.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "cli/doctor/doctor_command.h"
#include "cli/doctor/examine.h"
#include "cli/doctor/facts.h"
#include "common/base/text.h"
#include "tests/base/paths.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Grade = Finding::Grade;

MachineFacts GoodMachine() {
  return {
      .system = "Linux 6.1",
      .libc = "glibc 2.36",
      .programs = {{.path = "/x/muster-server", .there = true, .libraries = {"libzmq.so.5.2.4"}}},
      .processor = "A processor",
      .cores = 4,
      .load = 0.1,
      .instruction_sets = {"SCALAR", "AVX2"},
      .memory = {.all = 16e9, .available = 12e9},
      .open_files = 1024,
      .most_open_files = 4096,
      .disk_free = 100e9,
      .clock_source = "tsc",
      .year = 2026};
}

JobNeeds SmallJob() {
  return {.memory = {.server = 1e9, .each_worker = 2e9, .workers = 2},
          .workers = 2,
          .data = {.train = 50000, .test = 10000},
          .data_dir = "data"};
}

Grade WorstOf(const Findings& findings) {
  return std::ranges::max(findings, {}, &Finding::grade).grade;
}

Finding Of(const Findings& findings, const std::string& subject) {
  const auto found = std::ranges::find(findings, subject, &Finding::subject);
  EXPECT_NE(found, findings.end()) << subject;
  return found == findings.end() ? Finding{} : *found;
}

TEST(ExamineTest, AGoodMachine) {
  const Findings findings = ExamineMachine(GoodMachine());
  EXPECT_EQ(WorstOf(findings), Grade::kOk);
  EXPECT_THAT(Of(findings, "libraries").found, HasSubstr("libzmq.so.5.2.4"));
  EXPECT_EQ(WorstOf(ExamineJob(SmallJob(), GoodMachine())), Grade::kOk);
}

// A change of the machine, the affected check, its severity, and a word of the remedy.
struct Case {
  std::function<void(MachineFacts&)> change;
  const char* subject;
  Grade grade;
  const char* remedy;
};

TEST(ExamineTest, WhatAMachineLacks) {
  const Case cases[] = {
      {[](auto& m) { m.programs[0].there = false; }, "programs", Grade::kWrong, "one folder"},
      {[](auto& m) { m.programs[0].missing = {"libzmq.so.5"}; }, "libraries", Grade::kWrong,
       "setup.sh"},
      {[](auto& m) { m.instruction_sets = {"SCALAR"}; }, "processor", Grade::kNote, "AVX2"},
      {[](auto& m) { m.load = 3; }, "cores", Grade::kNote, "slower"},
      {[](auto& m) { m.memory.available = 5e8; }, "memory", Grade::kNote, "doctor CONFIG"},
      {[](auto& m) { m.most_open_files = 32; }, "limits", Grade::kWrong, "ulimit -n"},
      {[](auto& m) { m.address_space = 1e9; }, "limits", Grade::kNote, "ulimit -v"},
      {[](auto& m) { m.disk_free = 5e8; }, "disk", Grade::kNote, "--run-dir"},
      {[](auto& m) { m.disk_free = 1e6; }, "disk", Grade::kWrong, "--run-dir"},
      {[](auto& m) { m.disk_error = "Read-only file system"; }, "disk", Grade::kWrong, "--run-dir"},
      {[](auto& m) { m.shared_memory_error = "no"; }, "shared memory", Grade::kNote, "5.1"},
      {[](auto& m) { m.tcp_error = "no"; }, "sockets", Grade::kNote, "ip link"},
      {[](auto& m) { m.unix_error = "no"; }, "sockets", Grade::kWrong, "sandbox"},
      {[](auto& m) { m.clock_source = "hpet"; }, "clocks", Grade::kNote, "tsc"},
      {[](auto& m) { m.year = 1970; }, "clocks", Grade::kNote, "set it"},
  };
  for (const Case& one : cases) {
    MachineFacts facts = GoodMachine();
    one.change(facts);
    const Findings findings = ExamineMachine(facts);
    EXPECT_EQ(WorstOf(findings), one.grade) << one.subject;
    EXPECT_EQ(Of(findings, one.subject).grade, one.grade) << one.subject;
    EXPECT_THAT(Of(findings, one.subject).remedy, HasSubstr(one.remedy)) << one.subject;
  }
}

TEST(ExamineTest, AClockOfWhichNothingIsKnownIsNotCalledUnknown) {
  MachineFacts facts = GoodMachine();
  facts.clock_source.clear();
  facts.clock_synchronized = false;
  const Findings findings = ExamineMachine(facts);
  EXPECT_EQ(Of(findings, "clocks").found, "not synchronized");
  EXPECT_EQ(Of(findings, "clocks").grade, Grade::kOk);
}

TEST(ExamineTest, WhatAJobNeedsAndAMachineLacks) {
  const auto examine = [](const std::function<void(JobNeeds&, MachineFacts&)>& change) {
    JobNeeds needs = SmallJob();
    MachineFacts facts = GoodMachine();
    change(needs, facts);
    return ExamineJob(needs, facts);
  };
  const auto expect = [&](const char* subject, Grade grade, const auto& change) {
    const Findings findings = examine(change);
    EXPECT_EQ(WorstOf(findings), grade) << subject;
    EXPECT_EQ(Of(findings, subject).grade, grade) << subject;
  };
  expect("job's cores", Grade::kNote, [](auto& job, auto&) { job.workers = 8; });
  expect("job's memory", Grade::kNote, [](auto&, auto& m) { m.memory.available = 4e9; });
  expect("job's memory", Grade::kWrong, [](auto&, auto& m) { m.memory = {4e9, 4e9}; });
  expect("job's limits", Grade::kWrong, [](auto&, auto& m) { m.most_open_files = 70; });
  expect("job's limits", Grade::kWrong, [](auto&, auto& m) { m.address_space = 1.5e9; });
  expect("job's data", Grade::kWrong, [](auto& job, auto&) { job.data.problem = "cut off"; });
  expect("job's data", Grade::kNote, [](auto& job, auto&) { job.data.remark = "odd"; });
  expect("job's processor", Grade::kWrong,
         [](auto& job, auto&) { job.instruction_set_error = "no AVX512"; });
  expect("job's transport", Grade::kWrong, [](auto& job, auto& m) {
    job.over_tcp = true;
    m.tcp_error = "no";
  });
}

TEST(DoctorLinesTest, FitTheTerminal) {
  MachineFacts facts = GoodMachine();
  facts.load = 9;
  const Findings findings = ExamineMachine(facts);
  for (const std::string& line : DoctorLines(findings, 79, false)) {
    EXPECT_LE(line.size(), 79u) << line;
  }
  EXPECT_EQ(DoctorLines(findings, 1000, false).size(), findings.size());  // one line each
  EXPECT_THAT(Join(DoctorLines(findings, 79, false), "\n"),
              AllOf(HasSubstr("  note   cores"), Not(HasSubstr("\x1b"))));
  EXPECT_THAT(Join(DoctorLines(findings, 79, true), "\n"), HasSubstr("\x1b[33mnote \x1b[0m"));
}

TEST(DoctorLinesTest, AFindingOfSeveralLinesIsIndented) {
  const Findings findings{{Grade::kWrong, "job's GPUs", "not enough\n  GPU 0: of a\nb\x1b", ""}};
  const std::vector<std::string> lines = DoctorLines(findings, 79, false);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[0], ::testing::EndsWith("not enough"));
  EXPECT_EQ(lines[1], std::string(lines[0].find("not enough"), ' ') + "  GPU 0: of a\\nb\\x1b");
}

TEST(MachineFactsTest, OfThisMachine) {
  const MachineFacts facts =
      ReadMachineFacts({BinPath("muster"), BinPath("no-such-program")}, "/nowhere/at/all");
  ASSERT_EQ(facts.programs.size(), 2u);
  EXPECT_TRUE(facts.programs[0].there);
  EXPECT_TRUE(std::ranges::any_of(facts.programs[0].libraries, [](const std::string& library) {
    return library.starts_with("libprotobuf.so.");
  }));
  EXPECT_TRUE(facts.programs[0].missing.empty());
  EXPECT_FALSE(facts.programs[1].there);
  EXPECT_GE(facts.cores, 1);
  EXPECT_GT(facts.memory.available, 0);
  EXPECT_GT(facts.open_files, 0);
  EXPECT_GT(facts.disk_free, 0);
  EXPECT_EQ(facts.instruction_sets.front(), "SCALAR");
  EXPECT_EQ(facts.shared_memory_error, "");
  EXPECT_EQ(facts.unix_error, "");
}

TEST(MachineFactsTest, WhereFilesCanBeWritten) {
  EXPECT_EQ(TryToWrite(std::filesystem::temp_directory_path()), "");
  EXPECT_THAT(TryToWrite("/proc"), Not(""));
}

}  // namespace
}  // namespace muster
