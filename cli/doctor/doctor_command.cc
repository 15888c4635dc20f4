#include "cli/doctor/doctor_command.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "cli/doctor/examine.h"
#include "cli/doctor/facts.h"
#include "cli/text/console.h"
#include "cli/text/units.h"
#include "cli/text/wrapped.h"
#include "common/base/error.h"
#include "common/base/text.h"
#include "common/config/build_graph.h"
#include "common/config/data_format.h"
#include "common/config/hardware.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

using Grade = Finding::Grade;

constexpr int kSubjectWidth = 16;

const char* GradeText(Grade grade) {
  return grade == Grade::kOk ? "ok" : grade == Grade::kNote ? "note" : "WRONG";
}

const char* GradeColor(Grade grade) {
  return grade == Grade::kOk ? "\x1b[32m" : grade == Grade::kNote ? "\x1b[33m" : "\x1b[31;1m";
}

JobNeeds NeedsOf(const config::Config& config, const DoctorArguments& arguments) {
  const Graph graph = BuildGraph(config.model(), InputShape(config.data()));
  JobNeeds needs{
      .memory = LeastMemoryOf(config, graph),
      .workers = config.cluster().workers(),
      .worker_threads = config.worker().threads(),
      .over_tcp = config.cluster().transport() == config::Cluster::TCP,
      .data = arguments.count_data(config),
      .data_dir = config.data().format() == config::Data::SYNTHETIC ? "" : config.data().dir(),
      .data_is_listed = config.data().format() == config::Data::IMAGE_FOLDER};
  try {
    (void)ChooseInstructionSet(config.server().instruction_set());
  } catch (const Error& error) {
    needs.instruction_set_error = error.what();
  }
  return needs;
}

// Where the run directory would be created.
std::string RunParent(const config::Config* config) {
  if (config == nullptr || config->run().dir().empty()) return "runs";
  return std::filesystem::absolute(config->run().dir()).parent_path();
}

std::string Verdict(const Findings& findings) {
  const auto count = [&](Grade grade) {
    return std::ranges::count(findings, grade, &Finding::grade);
  };
  const auto wrong = count(Grade::kWrong), notes = count(Grade::kNote);
  if (wrong > 0) return fmt::format("{} found: a run would fail.", Plural(wrong, "problem"));
  if (notes > 0) return fmt::format("Runs will work, with {}.", Plural(notes, "note"));
  return "Runs will work.";
}

}  // namespace

std::vector<std::string> DoctorLines(const Findings& findings, int width, bool color) {
  std::vector<std::string> lines;
  const std::string indent(2 + 5 + 2 + kSubjectWidth + 2, ' ');
  for (const Finding& one : findings) {
    std::string text = one.found;
    if (!one.remedy.empty()) {
      if (text.ends_with('.')) text.pop_back();
      text += "; " + one.remedy;
    }
    const std::string grade = fmt::format("{:<5}", GradeText(one.grade));
    std::string head =
        fmt::format("  {}  {:<{}}  ", color ? GradeColor(one.grade) + grade + "\x1b[0m" : grade,
                    one.subject, kSubjectWidth);
    std::istringstream text_lines(ShownLines(text, std::string::npos));
    for (std::string line; std::getline(text_lines, line);) {
      for (const std::string& part :
           Wrapped(line, std::max(20, width - static_cast<int>(indent.size())))) {
        lines.push_back(head + part);
        head = indent;
      }
    }
  }
  return lines;
}

int RunDoctor(const DoctorArguments& arguments) {
  std::optional<config::Config> config;
  if (!arguments.config_path.empty())
    config = LoadConfig(arguments.config_path, arguments.settings);
  const GpuFacts gpus = ReadGpuFacts({.config = config ? &*config : nullptr,
                                      .config_path = arguments.config_path,
                                      .settings = arguments.settings,
                                      .worker_program = arguments.programs.back()});
  if (config) {
    if (gpus.workers > 0 && !config->cluster().has_workers()) {
      config->mutable_cluster()->set_workers(gpus.workers);
    }
    ResolveForMachine(*config, AvailableCores());
  }
  const MachineFacts facts =
      ReadMachineFacts(arguments.programs, RunParent(config ? &*config : nullptr));
  Findings findings = ExamineMachine(facts);
  for (Finding& one : ExamineGpus(gpus)) findings.push_back(std::move(one));
  if (config) {
    for (Finding& one : ExamineJob(NeedsOf(*config, arguments), facts)) {
      findings.push_back(std::move(one));
    }
  }
  const Console console(STDOUT_FILENO);
  const bool terminal = console.is_terminal();
  std::vector<std::string> lines = DoctorLines(findings, terminal ? console.Width() : 1 << 20,
                                               terminal && std::getenv("NO_COLOR") == nullptr);
  lines.push_back(Verdict(findings));
  PrintResultAsIs(Join(lines, "\n"));
  const bool wrong =
      std::ranges::any_of(findings, [](const Finding& one) { return one.grade == Grade::kWrong; });
  return static_cast<int>(wrong ? ExitCode::kFailure : ExitCode::kOk);
}

}  // namespace muster
