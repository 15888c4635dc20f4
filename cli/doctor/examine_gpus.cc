#include "cli/doctor/examine_gpus.h"

#include <fmt/core.h>

#include "cli/gpu/process_info.h"
#include "cli/gpu/usage.h"
#include "cli/text/units.h"
#include "common/base/join.h"

namespace muster {
namespace {

using Grade = Finding::Grade;

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
            "no job gets this GPU until that is repaired (nvidia-smi -q)"};
  }
  Finding finding{
      Grade::kOk, subject,
      fmt::format("{}, {} of {} free, {}{}{}", gpu.name,
                  FormatBytes(static_cast<double>(gpu.free_bytes)),
                  FormatBytes(static_cast<double>(gpu.total_bytes)), ProcessesText(gpu),
                  EccText(gpu), gpu.exclusive ? ", compute mode EXCLUSIVE_PROCESS" : ""),
      ""};
  std::string why = WhyBusy(gpu, 0);
  if (const TicketText* const holder = HolderOf(tickets, gpu.uuid)) {
    why = fmt::format("{} holds it since {}", JobText(*holder), ClockText(holder->changed));
  }
  finding.found += why.empty() ? ": idle" : ": busy (" + why + ")";
  if (gpu.ecc_errors.value_or(0) > 0) {
    finding.grade = Grade::kNote;
    finding.remedy =
        "jobs may crash or compute wrongly on it: see nvidia-smi -q -d ECC and reset the GPU";
  }
  return finding;
}

Finding Backend(const GpuFacts& facts) {
  if (facts.backend_error.empty()) {
    return {Grade::kOk, "GPU backend", facts.backend + ": computes as the CPU does", ""};
  }
  // Its own text says what to do.
  if (facts.computes_wrongly) return {Grade::kWrong, "GPU backend", facts.backend_error, ""};
  return {facts.wanted ? Grade::kWrong : Grade::kNote, "GPU backend", facts.backend_error,
          facts.wanted ? "or train on the CPU: --devices cpu" : "until then runs use the CPU"};
}

Finding GpusOfJob(const GpuFacts& facts) {
  if (!facts.take_error.empty()) {
    return {Grade::kWrong, "job's GPUs", facts.take_error, "or train on the CPU: --devices cpu"};
  }
  if (!facts.why_cpu.empty()) {
    return {Grade::kNote, "job's GPUs", facts.why_cpu, "training takes far longer than on a GPU"};
  }
  return {Grade::kOk, "job's GPUs", "idle, and this job would get them: " + facts.taken, ""};
}

}  // namespace

Findings ExamineGpus(const GpuFacts& facts) {
  Findings findings;
  if (facts.seen.gpus.empty()) {
    findings.push_back({Grade::kOk, "GPUs", "none: " + facts.seen.none, ""});
  } else {
    findings.push_back({Grade::kOk, "GPU driver", "NVIDIA " + facts.seen.driver, ""});
    for (const Gpu& gpu : facts.seen.gpus) findings.push_back(OneGpu(gpu, facts.tickets));
  }
  if (!facts.backend.empty() || !facts.backend_error.empty()) {
    findings.push_back(Backend(facts));
  } else if (!facts.seen.gpus.empty()) {
    findings.push_back({Grade::kOk, "GPU backend", "not tried: no GPU could be had for it", ""});
  }
  if (facts.job) findings.push_back(GpusOfJob(facts));
  return findings;
}

}  // namespace muster
