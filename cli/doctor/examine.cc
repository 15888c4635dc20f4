#include "cli/doctor/examine.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "cli/gpu/process_info.h"
#include "cli/gpu/usage.h"
#include "cli/text/units.h"
#include "common/base/error.h"
#include "common/base/resource_limits.h"
#include "common/base/text.h"

namespace muster {
namespace {

using Grade = Finding::Grade;

constexpr double kLittleDisk = 1e9, kNoDisk = 50e6;
constexpr double kLittleMemory = 1e9;

std::string LimitText(double bytes) {
  return bytes == kUnlimited ? "no limit" : FormatBytes(bytes);
}

// Libraries that affect what a run computes and sends.
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
    return {Grade::kWrong, "programs", "not next to muster: " + Join(absent, ", "),
            "install or build all programs into one folder"};
  }
  if (!missing.empty()) {
    return {Grade::kWrong, "libraries", "not found: " + Join(missing, ", "),
            "install them (scripts/setup.sh), or use the package, which includes them"};
  }
  known.insert(known.begin(), {facts.system, facts.libc});
  return {Grade::kOk, "libraries", Join(known, ", "), ""};
}

// Returns a note with the remedy if `less_good`, otherwise kOk without it.
Finding NoteIf(bool less_good, std::string subject, std::string found, std::string remedy) {
  return {less_good ? Grade::kNote : Grade::kOk, std::move(subject), std::move(found),
          less_good ? std::move(remedy) : ""};
}

Finding Processor(const MachineFacts& facts) {
  const std::string& widest = facts.instruction_sets.back();
  return NoteIf(widest == "SCALAR", "processor",
                fmt::format("{}; updates with {}{}{}", facts.processor, widest,
                            widest == "AVX512" ? "; oneDNN uses it, too" : "",
                            facts.bf16 ? "; AVX512-BF16 (worker.precision BF16)" : ""),
                "training is several times slower than with AVX2; use a newer processor");
}

Finding Cores(const MachineFacts& facts) {
  return NoteIf(facts.load > 0.5 * facts.cores, "cores",
                fmt::format("{} for this process; load {:.1f}", facts.cores, facts.load),
                "other programs use the cores: steps will be slower, and their times uneven");
}

Finding Memory(const MachineFacts& facts) {
  return NoteIf(facts.memory.available < kLittleMemory, "memory",
                fmt::format("{} available of {}", FormatBytes(facts.memory.available),
                            FormatBytes(facts.memory.all)),
                "`muster doctor CONFIG` checks whether that is enough for a job");
}

Finding Limits(const MachineFacts& facts) {
  std::string found = fmt::format(
      "open files {} (up to {}), address space {}, file size {}, locked memory {}, processes {}",
      FormatCount(facts.open_files), FormatCount(facts.most_open_files),
      LimitText(facts.address_space), LimitText(facts.file_size), LimitText(facts.locked_memory),
      FormatCount(facts.processes));
  if (facts.most_open_files < OpenFilesOfServer(1)) {
    return {Grade::kWrong, "limits", found,
            fmt::format("a server needs {} open files: ulimit -n {}", OpenFilesOfServer(1),
                        OpenFilesOfServer(8))};
  }
  return NoteIf(facts.address_space != kUnlimited || facts.file_size != kUnlimited, "limits",
                std::move(found),
                "ulimit -v and -f also limit shared memory: set them to unlimited if a run fails");
}

Finding Disk(const MachineFacts& facts) {
  if (!facts.disk_error.empty()) {
    return {Grade::kWrong, "disk", "cannot write run directories here: " + facts.disk_error,
            "change to another directory, or choose one with --run-dir"};
  }
  Finding finding = NoteIf(facts.disk_free < kLittleDisk, "disk",
                           FormatBytes(facts.disk_free) + " free for run directories",
                           "free some space, or choose another place with --run-dir");
  if (facts.disk_free < kNoDisk) finding.grade = Grade::kWrong;
  return finding;
}

Finding SharedMemory(const MachineFacts& facts) {
  if (facts.shared_memory_error.empty()) {
    return {Grade::kOk, "shared memory", "works, with sealing", ""};
  }
  return {Grade::kNote, "shared memory", "does not work: " + facts.shared_memory_error,
          "workers on this host will use slower sockets: check ulimit -f and -v; the kernel must "
          "be 5.1 "
          "or newer"};
}

Finding Ports(const MachineFacts& facts) {
  if (!facts.unix_error.empty()) {
    return {Grade::kWrong, "sockets", "Unix-domain sockets do not work: " + facts.unix_error,
            "a sandbox or container profile forbids them: allow them, or run outside of it"};
  }
  if (!facts.tcp_error.empty()) {
    return {Grade::kNote, "sockets", "no TCP on the loopback interface: " + facts.tcp_error,
            "only runs on one host will work: ip link set lo up"};
  }
  return {Grade::kOk, "sockets", "Unix-domain and TCP on the loopback interface", ""};
}

Finding Clocks(const MachineFacts& facts) {
  if (constexpr int64_t kSomeYear = 2025; facts.year < kSomeYear) {
    return {Grade::kNote, "clocks", fmt::format("the clock shows the year {}", facts.year),
            "set it: names of run directories, log times and downloads depend on it"};
  }
  const std::string& source = facts.clock_source;  // empty if a container hides it
  return NoteIf(source == "hpet" || source == "acpi_pm" || source == "refined-jiffies", "clocks",
                fmt::format("{}{}synchronized", source.empty() ? "" : source + ", ",
                            facts.clock_synchronized ? "" : "not "),
                "reading this clock takes microseconds: use tsc if the kernel allows it");
}

Finding JobMemory(const JobNeeds& needs, const MachineFacts& facts) {
  try {
    const std::string warning = CheckMemory(needs.memory, facts.memory);
    if (!warning.empty()) {
      return {Grade::kNote, "job's memory", warning, "stop other programs that use memory"};
    }
  } catch (const Error& error) {
    return {Grade::kWrong, "job's memory", error.what(), ""};
  }
  return {
      Grade::kOk, "job's memory",
      fmt::format("at least {}: {} for the server and {} for each of {}",
                  FormatBytes(needs.memory.all()), FormatBytes(needs.memory.server),
                  FormatBytes(needs.memory.each_worker), Plural(needs.memory.workers, "worker")),
      ""};
}

Finding JobLimits(const JobNeeds& needs, const MachineFacts& facts) {
  const double files = OpenFilesOfServer(needs.workers);
  if (facts.most_open_files < files) {
    return {Grade::kWrong, "job's limits",
            fmt::format("its server needs {} open files, but the limit is {}", FormatCount(files),
                        FormatCount(facts.most_open_files)),
            fmt::format("ulimit -n {:.0f}, or fewer workers", files)};
  }
  const double largest = std::max(needs.memory.server, needs.memory.each_worker);
  if (facts.address_space < largest || facts.file_size < largest) {
    return {Grade::kWrong, "job's limits",
            fmt::format("a process needs {}, including shared memory", FormatBytes(largest)),
            "ulimit -v unlimited; ulimit -f unlimited"};
  }
  return {Grade::kOk, "job's limits",
          fmt::format("the server needs {} open files", FormatCount(files)), ""};
}

Finding JobCores(const JobNeeds& needs, const MachineFacts& facts) {
  return NoteIf(needs.workers * needs.worker_threads > static_cast<unsigned>(facts.cores),
                "job's cores",
                fmt::format("{} x {} on {}", Plural(needs.workers, "worker"),
                            Plural(needs.worker_threads, "thread"), Plural(facts.cores, "core")),
                "threads share cores: use fewer workers or more cores");
}

Finding JobData(const JobNeeds& needs) {
  const std::string samples =
      fmt::format("{} samples{} and {} for testing", FormatCount(needs.data.train),
                  needs.data.validation > 0
                      ? fmt::format(", {} for validation", FormatCount(needs.data.validation))
                      : "",
                  FormatCount(needs.data.test));
  if (needs.data_dir.empty() && needs.data.problem.empty()) {
    return {Grade::kOk, "job's data", "synthetic: " + samples, ""};
  }
  if (!needs.data.problem.empty()) {
    return {Grade::kWrong, "job's data", needs.data.problem, ""};
  }
  return NoteIf(
      !needs.data.remark.empty(), "job's data",
      fmt::format("{}: {} in {}",
                  needs.data_is_listed ? "listed, not decoded (see muster data check)" : "complete",
                  samples, needs.data_dir),
      needs.data.remark);
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

namespace {

std::string EccText(const Gpu& gpu) {
  if (!gpu.ecc) return "";
  if (!*gpu.ecc) return ", ECC off";
  return gpu.ecc_errors.value_or(0) == 0
             ? ", ECC on"
             : fmt::format(", ECC on: {} uncorrected", Plural(*gpu.ecc_errors, "memory error"));
}

std::string ProcessesText(const Gpu& gpu) {
  std::vector<std::string> texts;
  for (const GpuProcess& process : gpu.processes) {
    const ProcessText text = DescribeProcess(process.pid);
    texts.push_back(fmt::format("pid {}{}", process.pid, text.seen ? " of " + text.user : ""));
  }
  return texts.empty() ? "no processes" : Join(texts, ", ");
}

Finding OneGpu(const Gpu& gpu, const std::vector<TicketText>& tickets) {
  const std::string subject = "GPU " + gpu.index;
  if (!gpu.trouble.empty()) {
    return {Grade::kNote, subject, gpu.name + (gpu.name.empty() ? "" : ": ") + gpu.trouble,
            "no job will use this GPU until that is repaired (see nvidia-smi -q)"};
  }
  std::string why = WhyBusy(gpu, 0);
  if (const TicketText* const holder = HolderOf(tickets, gpu.uuid)) {
    why = fmt::format("{} holds it since {}", JobText(*holder), ClockText(holder->changed));
  }
  return NoteIf(
      gpu.ecc_errors.value_or(0) > 0, subject,
      fmt::format("{}, {} of {} free, {}{}{}: {}", gpu.name,
                  FormatBytes(static_cast<double>(gpu.free_bytes)),
                  FormatBytes(static_cast<double>(gpu.total_bytes)), ProcessesText(gpu),
                  EccText(gpu), gpu.exclusive ? ", compute mode EXCLUSIVE_PROCESS" : "",
                  why.empty() ? "idle" : "busy (" + why + ")"),
      "jobs may crash or give wrong results on it: see nvidia-smi -q -d ECC, and reset the GPU");
}

Finding Backend(const GpuFacts& facts) {
  if (facts.backend_error.empty()) {
    return {Grade::kOk, "GPU backend", facts.backend + ": matches the CPU", ""};
  }
  // The error itself says what to do.
  if (facts.computes_wrongly) return {Grade::kWrong, "GPU backend", facts.backend_error, ""};
  const bool wrong = facts.wanted && !facts.seen.gpus.empty();
  return {wrong ? Grade::kWrong : Grade::kNote, "GPU backend", facts.backend_error,
          wrong ? "or train on the CPU: --devices cpu" : "until then runs use the CPU"};
}

Finding GpusOfJob(const GpuFacts& facts) {
  if (!facts.take_error.empty()) {
    return {Grade::kWrong, "job's GPUs", facts.take_error, "or train on the CPU: --devices cpu"};
  }
  if (!facts.why_cpu.empty()) {
    return {Grade::kNote, "job's GPUs", facts.why_cpu, "training takes much longer than on a GPU"};
  }
  return {Grade::kOk, "job's GPUs", "idle, this job would get " + facts.taken, ""};
}

}  // namespace

Findings ExamineGpus(const GpuFacts& facts) {
  if (!facts.driver_error.empty()) {
    return {{Grade::kWrong, "GPU driver", facts.driver_error, ""}};
  }
  Findings findings;
  if (facts.seen.gpus.empty()) {
    const bool failed = facts.seen.failed;
    findings.push_back({failed ? Grade::kNote : Grade::kOk, "GPUs", "none: " + facts.seen.none,
                        failed ? "see nvidia-smi; after an update of the driver, restart the host "
                                 "or its container"
                               : ""});
  } else {
    findings.push_back({Grade::kOk, "GPU driver", "NVIDIA " + facts.seen.driver, ""});
    for (const Gpu& gpu : facts.seen.gpus) findings.push_back(OneGpu(gpu, facts.tickets));
  }
  if (!facts.backend.empty() || !facts.backend_error.empty()) {
    findings.push_back(Backend(facts));
  } else if (!facts.seen.gpus.empty()) {
    findings.push_back({Grade::kOk, "GPU backend",
                        facts.taken.empty() ? "not tested: no GPU is available"
                                            : "not tested: the job's own program computes",
                        ""});
  }
  if (facts.job) findings.push_back(GpusOfJob(facts));
  return findings;
}

}  // namespace muster
