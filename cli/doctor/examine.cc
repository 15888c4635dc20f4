#include "cli/doctor/examine.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "cli/text/units.h"
#include "common/base/error.h"
#include "common/base/join.h"
#include "common/base/resource_limits.h"

namespace muster {
namespace {

using Grade = Finding::Grade;

constexpr double kLittleDisk = 1e9, kNoDisk = 50e6;
constexpr double kLittleMemory = 1e9;

std::string LimitText(double bytes) {
  return bytes == kUnlimited ? "no limit" : FormatBytes(bytes);
}

// Those that what a run computes and sends depends on.
bool IsWorthNaming(const std::string& library) {
  return std::ranges::any_of(std::array{"libdnnl.so.", "libzmq.so.", "libprotobuf.so."},
                             [&](const char* name) { return library.starts_with(name); });
}

Finding Programs(const MachineFacts& facts) {
  std::vector<std::string> absent, missing, known;
  for (const ProgramFacts& program : facts.programs) {
    const std::string name = std::filesystem::path(program.path).filename();
    if (!program.there) absent.push_back(name);
    for (const std::string& library : program.missing)
      missing.push_back(fmt::format("{} of {}", library, name));
    for (const std::string& library : program.libraries) {
      if (IsWorthNaming(library)) known.push_back(library);
    }
  }
  std::ranges::sort(known);
  known.erase(std::unique(known.begin(), known.end()), known.end());
  if (!absent.empty()) {
    return {Grade::kWrong, "programs", "not beside muster: " + Join(absent, ", "),
            "install or build all programs into one folder"};
  }
  if (!missing.empty()) {
    return {Grade::kWrong, "libraries", "not found: " + Join(missing, ", "),
            "install them (scripts/setup.sh), or use the package, which has its own"};
  }
  known.insert(known.begin(), {facts.system, facts.libc});
  return {Grade::kOk, "libraries", Join(known, ", "), ""};
}

Finding Processor(const MachineFacts& facts) {
  const std::string& widest = facts.instruction_sets.back();
  Finding finding{Grade::kOk, "processor",
                  fmt::format("{}; updates with {}{}", facts.processor, widest,
                              widest == "AVX512" ? "; oneDNN chooses its kernels by it, too" : ""),
                  ""};
  if (widest == "SCALAR") {
    finding.grade = Grade::kNote;
    finding.remedy = "training is several times slower than with AVX2; use a newer processor";
  }
  return finding;
}

Finding Cores(const MachineFacts& facts) {
  Finding finding{Grade::kOk, "cores",
                  fmt::format("{} for this process; load {:.1f}", facts.cores, facts.load), ""};
  if (facts.load > 0.5 * facts.cores) {
    finding.grade = Grade::kNote;
    finding.remedy = "other work takes its part: steps will be slower, and unevenly so";
  }
  return finding;
}

Finding Memory(const MachineFacts& facts) {
  Finding finding{Grade::kOk, "memory",
                  fmt::format("{} available of {}", FormatBytes(facts.memory.available),
                              FormatBytes(facts.memory.all)),
                  ""};
  if (facts.memory.available < kLittleMemory) {
    finding.grade = Grade::kNote;
    finding.remedy = "`muster doctor CONFIG` says whether that is enough for a job";
  }
  return finding;
}

Finding Limits(const MachineFacts& facts) {
  Finding finding{
      Grade::kOk, "limits",
      fmt::format("open files {} (up to {}), address space {}, file size {}, locked memory {}, "
                  "processes {}",
                  FormatCount(facts.open_files), FormatCount(facts.most_open_files),
                  LimitText(facts.address_space), LimitText(facts.file_size),
                  LimitText(facts.locked_memory), FormatCount(facts.processes)),
      ""};
  if (facts.most_open_files < OpenFilesOfServer(1)) {
    return {Grade::kWrong, "limits", finding.found,
            fmt::format("a server needs {} open files: ulimit -n {}", OpenFilesOfServer(1),
                        OpenFilesOfServer(8))};
  }
  if (facts.address_space != kUnlimited || facts.file_size != kUnlimited) {
    finding.grade = Grade::kNote;
    finding.remedy =
        "ulimit -v and ulimit -f count shared memory, too: set them to unlimited if a run fails";
  }
  return finding;
}

Finding Disk(const MachineFacts& facts) {
  if (!facts.disk_error.empty()) {
    return {Grade::kWrong, "disk", "run directories cannot be written here: " + facts.disk_error,
            "go to another directory, or choose one with --run-dir"};
  }
  Finding finding{Grade::kOk, "disk", FormatBytes(facts.disk_free) + " free for run directories",
                  ""};
  if (facts.disk_free < kLittleDisk) {
    finding.grade = facts.disk_free < kNoDisk ? Grade::kWrong : Grade::kNote;
    finding.remedy = "free some space, or choose another place with --run-dir";
  }
  return finding;
}

Finding SharedMemory(const MachineFacts& facts) {
  if (facts.shared_memory_error.empty()) {
    return {Grade::kOk, "shared memory", "works, sealed", ""};
  }
  return {
      Grade::kNote, "shared memory", "does not work: " + facts.shared_memory_error,
      "workers of one host will use sockets, slower: look at ulimit -f and -v; the kernel must be "
      "5.1 or newer"};
}

Finding Ports(const MachineFacts& facts) {
  if (!facts.unix_error.empty()) {
    return {Grade::kWrong, "sockets", "Unix-domain sockets do not work: " + facts.unix_error,
            "a sandbox or a container's profile forbids them: allow them, or run outside of it"};
  }
  if (!facts.tcp_error.empty()) {
    return {Grade::kNote, "sockets", "no TCP on the loopback interface: " + facts.tcp_error,
            "only runs on one host will work: ip link set lo up"};
  }
  return {Grade::kOk, "sockets", "Unix-domain and TCP on the loopback interface", ""};
}

Finding Clocks(const MachineFacts& facts) {
  std::string text = facts.clock_synchronized ? "synchronized" : "not synchronized";
  // A container may hide the source.
  if (!facts.clock_source.empty()) text = fmt::format("{}, {}", facts.clock_source, text);
  Finding finding{Grade::kOk, "clocks", text, ""};
  if (constexpr int64_t kSomeYear = 2025; facts.year < kSomeYear) {
    return {Grade::kNote, "clocks", fmt::format("the clock says the year {}", facts.year),
            "set it: names of run directories and times in logs follow it, and downloads need it"};
  }
  if (facts.clock_source == "hpet" || facts.clock_source == "acpi_pm" ||
      facts.clock_source == "refined-jiffies") {
    finding.grade = Grade::kNote;
    finding.remedy = "reading this one takes microseconds: if the kernel allows it, use tsc";
  }
  return finding;
}

Finding JobMemory(const JobNeeds& needs, const MachineFacts& facts) {
  try {
    const std::string warning = CheckMemory(needs.memory, facts.memory);
    if (!warning.empty()) {
      return {Grade::kNote, "job's memory", warning, "end what else uses memory"};
    }
  } catch (const Error& error) {
    return {Grade::kWrong, "job's memory", error.what(), ""};
  }
  return {Grade::kOk, "job's memory",
          fmt::format("at least {}: the server {}, each of {} {}", FormatBytes(needs.memory.all()),
                      FormatBytes(needs.memory.server), Plural(needs.memory.workers, "worker"),
                      FormatBytes(needs.memory.each_worker)),
          ""};
}

Finding JobLimits(const JobNeeds& needs, const MachineFacts& facts) {
  const double files = OpenFilesOfServer(needs.workers);
  if (facts.most_open_files < files) {
    return {Grade::kWrong, "job's limits",
            fmt::format("its server needs {} open files, and may have {}", FormatCount(files),
                        FormatCount(facts.most_open_files)),
            fmt::format("ulimit -n {:.0f}, or fewer workers", files)};
  }
  const double largest = std::max(needs.memory.server, needs.memory.each_worker);
  if (facts.address_space < largest || facts.file_size < largest) {
    return {
        Grade::kWrong, "job's limits",
        fmt::format("a process needs {} of memory, shared memory included", FormatBytes(largest)),
        "ulimit -v unlimited; ulimit -f unlimited"};
  }
  return {Grade::kOk, "job's limits",
          fmt::format("{} open files of the server", FormatCount(files)), ""};
}

Finding JobCores(const JobNeeds& needs, const MachineFacts& facts) {
  const unsigned threads = needs.workers * needs.worker_threads;
  Finding finding{Grade::kOk, "job's cores",
                  fmt::format("{} x {} on {}", Plural(needs.workers, "worker"),
                              Plural(needs.worker_threads, "thread"), Plural(facts.cores, "core")),
                  ""};
  if (threads > static_cast<unsigned>(facts.cores)) {
    finding.grade = Grade::kNote;
    finding.remedy = "threads share cores: fewer workers, or more cores, are faster";
  }
  return finding;
}

Finding JobData(const JobNeeds& needs) {
  if (needs.data_dir.empty() && needs.data.problem.empty()) {
    return {Grade::kOk, "job's data",
            fmt::format("made up: {} images and {} for testing", FormatCount(needs.data.train),
                        FormatCount(needs.data.test)),
            ""};
  }
  if (!needs.data.problem.empty()) {
    return {Grade::kWrong, "job's data", needs.data.problem,
            "--data DIR says where they are; `muster data get` downloads CIFAR-10"};
  }
  return {needs.data.remark.empty() ? Grade::kOk : Grade::kNote, "job's data",
          fmt::format("whole: {} images and {} for testing in {}", FormatCount(needs.data.train),
                      FormatCount(needs.data.test), needs.data_dir),
          needs.data.remark};
}

}  // namespace

Findings ExamineMachine(const MachineFacts& facts) {
  return {Programs(facts), Processor(facts),    Cores(facts), Memory(facts), Limits(facts),
          Disk(facts),     SharedMemory(facts), Ports(facts), Clocks(facts)};
}

Findings ExamineJob(const JobNeeds& needs, const MachineFacts& facts) {
  Findings findings{JobCores(needs, facts), JobMemory(needs, facts), JobLimits(needs, facts),
                    JobData(needs)};
  if (!needs.instruction_set_error.empty()) {
    findings.push_back({Grade::kWrong, "job's processor", needs.instruction_set_error, ""});
  }
  if (needs.over_tcp && !facts.tcp_error.empty()) {
    findings.push_back({Grade::kWrong, "job's transport",
                        "TCP, which does not work here: " + facts.tcp_error,
                        "cluster.transport=AUTO, or ip link set lo up"});
  }
  return findings;
}

}  // namespace muster
