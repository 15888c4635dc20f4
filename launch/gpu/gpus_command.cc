#include "launch/gpu/gpus_command.h"

#include <unistd.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "common/base/join.h"
#include "launch/gpu/gpu_probe.h"
#include "launch/gpu/gpus_text.h"
#include "launch/gpu/lock_folder.h"
#include "launch/gpu/ticket.h"
#include "launch/text/console.h"

namespace muster {
namespace {

constexpr const char* kClearScreen = "\x1b[H\x1b[2J";

}  // namespace

int RunGpus(const GpusArguments& arguments) {
  const std::unique_ptr<GpuProbe> probe = OpenNvml();
  const LockFolder folder = LockFolder::OfHost();
  const bool redraw = arguments.watch_s > 0 && !arguments.json && ::isatty(STDOUT_FILENO) != 0;
  for (;;) {
    const GpuSnapshot seen = probe->Look();
    const std::vector<SeenTicket> tickets = ReadTickets(folder);
    if (arguments.json) {
      // One line for each look, where there are several.
      PrintResult(GpusJson(seen, tickets).dump(arguments.watch_s > 0 ? -1 : 2));
    } else {
      PrintResult((redraw ? kClearScreen : "") + Join(GpusLines(seen, tickets), "\n"));
      if (arguments.watch_s > 0 && !redraw) PrintResult("\n");
    }
    if (arguments.watch_s <= 0) return 0;
    std::this_thread::sleep_for(std::chrono::duration<double>(arguments.watch_s));
  }
}

}  // namespace muster
