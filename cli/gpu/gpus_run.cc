#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <memory>

#include "cli/gpu/gpu_plan.h"
#include "cli/gpu/gpu_probe.h"
#include "cli/gpu/gpus_command.h"
#include "cli/gpu/job_gpus.h"
#include "cli/gpu/take_gpus.h"
#include "cli/gpu/visible_devices.h"
#include "cli/text/console.h"
#include "common/base/error.h"
#include "common/base/join.h"
#include "common/base/resource_limits.h"
#include "common/base/utf8.h"

namespace muster {
namespace {

TakenGpus Take(const GpusRunArguments& arguments) {
  const std::unique_ptr<GpuProbe> probe = OpenNvml();
  const GpuSnapshot seen = probe->Look();
  const GpuPlan plan =
      PlanGpus({.devices = {.kind = DeviceWish::Kind::kAuto, .count = arguments.count},
                .origin = fmt::format("muster gpus run -n {}", arguments.count),
                .what = OneLine(Join(arguments.command, " "), 60)},
               seen, VisibleHere(seen));
  if (!plan.wish) throw Error(ExitCode::kFailure, "{}", plan.reason);
  // Standard output is the command's.
  return TakeGpus(*probe, LockFolder::OfHost(), *plan.wish,
                  {.wait_s = arguments.wait_s,
                   .say = [](const std::string& line) { PrintError("muster: " + line + "\n"); }});
}

// Passed on over exec; what NVML has opened is not.
void Inherit(const TakenGpus& taken) {
  ::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
  ::fcntl(taken.ticket->fd(), F_SETFD, 0);
  for (const UniqueFd& lock : taken.locks) ::fcntl(lock.get(), F_SETFD, 0);
}

}  // namespace

void RunWithGpus(const GpusRunArguments& arguments) {
  const TakenGpus taken = Take(arguments);
  std::vector<std::string> uuids, texts;
  for (const Gpu& gpu : taken.gpus) {
    uuids.push_back(gpu.uuid);
    texts.push_back(GpuText(gpu));
  }
  PrintError(fmt::format("muster: {}: {}\n", Join(texts, ", "), taken.reason));
  ::setenv("CUDA_VISIBLE_DEVICES", Join(uuids, ",").c_str(), 1);
  Inherit(taken);
  ::signal(SIGXFSZ, SIG_DFL);  // as it was before main
  std::vector<char*> words;
  for (const std::string& word : arguments.command)
    words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  ::execvp(words[0], words.data());
  throw Error(ExitCode::kUsage, "cannot execute {}: {}", arguments.command[0], ErrorText(errno));
}

}  // namespace muster
