#include "cli/gpu/gpu_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>

#include "cli/text/units.h"
#include "common/base/error.h"
#include "common/base/text.h"

namespace muster {
namespace {

using Kind = DeviceWish::Kind;

std::string KnownGpus(const GpuSnapshot& seen) {
  std::vector<std::string> known;
  for (const Gpu& gpu : seen.gpus) {
    known.push_back(fmt::format("{} ({})", gpu.index, gpu.uuid.substr(0, 12)));
  }
  return Join(known, ", ");
}

std::string Lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::vector<const Gpu*> GpusNamed(const std::string& name, const GpuSnapshot& seen) {
  const bool number = name.find_first_not_of("0123456789") == std::string::npos;
  std::vector<const Gpu*> found;
  for (const Gpu& gpu : seen.gpus) {
    const bool means = number ? gpu.index == name || gpu.index.starts_with(name + ":")
                              : !gpu.uuid.empty() && Lower(gpu.uuid).starts_with(Lower(name));
    if (means) found.push_back(&gpu);
  }
  return found;
}

// Returns the UUID of the GPU that `name` refers to. Throws unless there is exactly one.
std::string Resolve(const std::string& name, const GpuRequest& request, const GpuSnapshot& seen) {
  const std::vector<const Gpu*> found = GpusNamed(name, seen);
  if (found.size() == 1 && !found[0]->uuid.empty()) return found[0]->uuid;
  std::string what = "there is no GPU " + name;
  if (found.size() == 1) what = fmt::format("GPU {} cannot be used: {}", name, found[0]->trouble);
  if (found.size() > 1) what = fmt::format("{} matches {} GPUs", name, found.size());
  if (found.size() > 1 && found[0]->index.find(':') != std::string::npos) {
    what += " (it is divided: name its parts by MIG UUID)";
  }
  throw Error(ExitCode::kUsage, "{}: {}; expected any of {}", request.origin, what,
              KnownGpus(seen));
}

std::vector<std::string> ResolveAll(const GpuRequest& request, const GpuSnapshot& seen) {
  std::vector<std::string> uuids;
  for (const std::string& name : request.devices.names) {
    uuids.push_back(Resolve(name, request, seen));
    if (std::ranges::count(uuids, uuids.back()) > 1) {
      throw Error(ExitCode::kUsage, "{}: {} names a GPU that is listed already", request.origin,
                  name);
    }
  }
  return uuids;
}

std::string GpuCount(size_t count) { return Plural(static_cast<int64_t>(count), "GPU"); }

std::string Among(const VisibleGpus& visible) {
  return visible.limited ? fmt::format(" visible with CUDA_VISIBLE_DEVICES=\"{}\"", visible.value)
                         : "";
}

// The number of GPUs for `auto` does not depend on other jobs, because the size of a job may change
// its result.
size_t AutoCount(const GpuRequest& request, const VisibleGpus& visible) {
  if (request.devices.count > 0) return static_cast<size_t>(request.devices.count);
  if (request.workers) return std::max(1u, *request.workers / request.workers_per_gpu);
  return visible.limited && !request.by_default ? visible.uuids.size() : 1;
}

void CheckWorkers(const GpuRequest& request, size_t gpus) {
  const size_t expected = gpus * request.workers_per_gpu;
  if (!request.workers || *request.workers == expected) return;
  throw Error(ExitCode::kUsage,
              "{}: {} with {} each (worker.workers_per_gpu): expected cluster.workers {}, got {}",
              request.origin, GpuCount(gpus), Plural(int64_t{request.workers_per_gpu}, "worker"),
              expected, *request.workers);
}

void PlanNamed(const GpuRequest& request, const GpuSnapshot& seen, const VisibleGpus& visible,
               GpuWish& wish, GpuPlan& plan) {
  wish.pool = ResolveAll(request, seen);
  wish.count = wish.pool.size();
  wish.named = true;
  const bool hidden = std::ranges::any_of(wish.pool, [&](const std::string& uuid) {
    return std::ranges::find(visible.uuids, uuid) == visible.uuids.end();
  });
  if (!visible.limited || !hidden) return;
  if (request.typed) {
    plan.reason +=
        fmt::format("; CUDA_VISIBLE_DEVICES=\"{}\" hides some, but the command line overrides it",
                    visible.value);
    return;
  }
  plan.reason += fmt::format(
      "; CUDA_VISIBLE_DEVICES=\"{}\" hides some and overrides the config: choosing among the {} "
      "visible ones",
      visible.value, visible.uuids.size());
  wish.pool = visible.uuids;
  wish.count = std::min(wish.count, wish.pool.size());
  wish.named = false;
}

void PlanAuto(const GpuRequest& request, const VisibleGpus& visible, GpuWish& wish, GpuPlan& plan) {
  wish.pool = visible.uuids;
  wish.count = AutoCount(request, visible);
  const std::string among = Among(visible);
  plan.reason += fmt::format(", {} of {}{}", wish.count, GpuCount(wish.pool.size()), among);
  if (wish.count <= wish.pool.size()) return;
  throw Error(ExitCode::kUsage, "{}: expected at most {}, the number of GPUs{}, got {}",
              request.origin, wish.pool.size(), among, wish.count);
}

// Plans for a job that does not request GPUs: one GPU for each requested worker, or a single one if
// no number is requested, because other users may share the machine.
void PlanDefault(const GpuRequest& request, const GpuSnapshot& seen, const VisibleGpus& visible,
                 GpuWish& wish, GpuPlan& plan) {
  wish.pool = visible.uuids;
  wish.count = AutoCount(request, visible);
  const size_t all = wish.pool.size();
  const size_t idle = request.idle ? request.idle->size() : all;
  const std::string among = Among(visible);
  const std::string start = fmt::format("--workers {}", idle * request.workers_per_gpu);
  if (idle == 0) {
    plan.reason = fmt::format("none of {}{} is idle (see `muster gpus`; --wait waits for one)",
                              GpuCount(all), among);
    wish.count = 0;
    return;
  }
  if (wish.count > idle) {
    std::string busy;
    for (const std::string& uuid : wish.pool) {
      if (request.idle && std::ranges::count(*request.idle, uuid) == 0) {
        busy += (busy.empty() ? "" : ", ") + seen.Find(uuid)->index;
      }
    }
    throw Error(ExitCode::kFailure,
                "{} need {}, but {} of {}{} {} idle{}: {} would start now, --devices cpu uses the "
                "CPU{}",
                Plural(int64_t(wish.count * request.workers_per_gpu), "worker"),
                GpuCount(wish.count), idle, GpuCount(all), among, idle == 1 ? "is" : "are",
                busy.empty() ? "" : fmt::format(" (busy: {})", busy), start,
                wish.count > all ? "" : ", and --wait waits for more");
  }
  const size_t more = idle - wish.count;
  plan.reason = fmt::format("by default, {} of {}{}", wish.count, GpuCount(all), among);
  plan.hint = fmt::format("{}--devices cpu uses the CPU",
                          more == 0 ? ""
                                    : fmt::format("{} more {} idle ({} uses all); ", more,
                                                  more == 1 ? "is" : "are", start));
}

}  // namespace

GpuPlan PlanGpus(const GpuRequest& request, const GpuSnapshot& seen, const VisibleGpus& visible) {
  GpuPlan plan{.reason = request.origin};
  if (!request.devices.WantsCards() && !request.by_default) return plan;
  const bool named = request.devices.kind == Kind::kNamed;
  if (seen.gpus.empty()) {
    plan.reason += ": " + seen.none;
    return plan;
  }
  if (visible.uuids.empty() && !(named && request.typed)) {
    plan.reason += !visible.limited
                       ? ": no GPU is usable"
                       : fmt::format(": CUDA_VISIBLE_DEVICES=\"{}\" leaves no GPU{}", visible.value,
                                     visible.no_driver ? ", because the CUDA driver (libcuda.so.1) "
                                                         "does not answer"
                                                       : "");
    return plan;
  }
  GpuWish wish{.free_share = request.memory_fraction * request.workers_per_gpu,
               .what = request.what};
  if (request.workers) {
    wish.fewer = "--workers ";
    wish.fewer_unit = request.workers_per_gpu;
  }
  if (named) {
    PlanNamed(request, seen, visible, wish, plan);
  } else if (request.by_default) {
    PlanDefault(request, seen, visible, wish, plan);
    if (wish.count == 0) return plan;
  } else {
    PlanAuto(request, visible, wish, plan);
  }
  CheckWorkers(request, wish.count);
  plan.workers = static_cast<uint32_t>(wish.count) * request.workers_per_gpu;
  plan.wish = std::move(wish);
  return plan;
}

}  // namespace muster
