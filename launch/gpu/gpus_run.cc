#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <thread>

#include "common/base/error.h"
#include "common/base/join.h"
#include "common/base/resource_limits.h"
#include "common/base/utf8.h"
#include "launch/gpu/card_plan.h"
#include "launch/gpu/gpu_probe.h"
#include "launch/gpu/gpus_command.h"
#include "launch/gpu/job_cards.h"
#include "launch/gpu/process_info.h"
#include "launch/gpu/take_cards.h"
#include "launch/gpu/visible_devices.h"
#include "launch/text/console.h"

namespace muster {
namespace {

TakenCards Take(const GpusRunArguments& arguments) {
  const std::unique_ptr<GpuProbe> probe = OpenNvml();
  const GpuSnapshot seen = probe->Look();
  const CardPlan plan =
      PlanCards({.devices = {.kind = DeviceWish::Kind::kAuto, .count = arguments.count},
                 .origin = fmt::format("muster gpus run -n {}", arguments.count),
                 .what = OneLine(Join(arguments.command, " "), 60)},
                seen, VisibleHere(seen));
  if (!plan.wish) throw Error(ExitCode::kFailure, "{}", plan.reason);
  const TakeOptions options{
      .wait_s = arguments.wait_s,
      // Standard output is the command's.
      .say = [](const std::string& line) { PrintError("muster: " + line + "\n"); },
      .sleep =
          [](double seconds) {
            std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
          }};
  return TakeCards(*probe, LockFolder::OfHost(), *plan.wish, options);
}

// Passed on over exec; what NVML has opened is not.
void Inherit(const TakenCards& taken) {
  ::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
  ::fcntl(taken.ticket.fd(), F_SETFD, 0);
  for (const CardLock& lock : taken.locks) ::fcntl(lock.fd(), F_SETFD, 0);
}

}  // namespace

void RunWithGpus(const GpusRunArguments& arguments) {
  TakenCards taken = Take(arguments);
  std::vector<std::string> uuids, texts;
  for (const Gpu& gpu : taken.cards) {
    uuids.push_back(gpu.uuid);
    texts.push_back(CardText(gpu));
  }
  PrintError(fmt::format("muster: {}: {}\n", Join(texts, ", "), taken.reason));
  ::setenv("CUDA_VISIBLE_DEVICES", Join(uuids, ",").c_str(), 1);
  Inherit(taken);
  taken.ticket.Keep();
  ::signal(SIGXFSZ, SIG_DFL);  // as it was before main
  std::vector<char*> words;
  for (const std::string& word : arguments.command)
    words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  ::execvp(words[0], words.data());
  const int error = errno;
  ::unlink(LockFolder::OfHost().File(taken.ticket.name()).c_str());
  throw Error(ExitCode::kUsage, "cannot execute {}: {}", arguments.command[0], ErrorText(error));
}

}  // namespace muster
