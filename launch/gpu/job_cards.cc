#include "launch/gpu/job_cards.h"

#include <fmt/core.h>
#include <sched.h>

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "common/base/error.h"
#include "common/base/utf8.h"
#include "launch/gpu/usage_text.h"
#include "launch/text/units.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

// In place of how cards were asked for.
constexpr const char* kByDefault = "the GPUs that the job takes by default";

CardRequest RequestOf(const config::Config& config, const std::string& config_path,
                      const std::string& typed) {
  const config::Worker& worker = config.worker();
  CardRequest request{.devices = ParseDevices(worker.devices()),
                      .origin = typed.empty() ? "worker.devices=" + worker.devices() : typed,
                      .typed = !typed.empty(),
                      .workers_per_card = worker.workers_per_gpu(),
                      .memory_fraction = worker.gpu_memory_fraction(),
                      .what = "launch " + config_path};
  if (config.cluster().has_workers()) request.workers = config.cluster().workers();
  if (request.devices.kind == DeviceWish::Kind::kNotSaid) request.origin = kByDefault;
  return request;
}

// NVIDIA's variable has an S at its end; nothing reads this one.
std::string EnvironmentRemark() {
  const char* const value = std::getenv("CUDA_VISIBLE_DEVICE");
  if (value == nullptr) return "";
  return fmt::format(
      "Warning: CUDA_VISIBLE_DEVICE={} has no effect: the variable is called "
      "CUDA_VISIBLE_DEVICES",
      OneLine(value, 60));
}

}  // namespace

std::string WhyNoGpuBackend(const config::Config& config, const std::string& worker_program) {
  const config::Worker& worker = config.worker();
  if (worker.backend() == config::Worker::CUDA) return "";
  if (worker.has_backend()) return "worker.backend=CPU";
  const std::filesystem::path folder = std::filesystem::path(worker_program).parent_path();
  std::error_code ignored;
  for (const auto& place : {folder, folder / ".." / "lib"}) {
    if (std::filesystem::exists(place / "libmuster_cuda.so", ignored)) return "";
  }
  return "this build has no CUDA backend (libmuster_cuda.so)";
}

std::string CardText(const Gpu& gpu) {
  return fmt::format("card {} ({}, {}, {})", gpu.index, gpu.uuid.substr(0, 12), gpu.name,
                     FormatBytes(static_cast<double>(gpu.total_bytes)));
}

WorkerPlace PlaceOf(const Gpu& gpu) {
  WorkerPlace place{.card = gpu};
  place.environment.push_back("CUDA_VISIBLE_DEVICES=" + gpu.uuid);
  cpu_set_t ours;
  CPU_ZERO(&ours);
  if (::sched_getaffinity(0, sizeof ours, &ours) == 0) {
    for (const int core : gpu.cores) {
      if (core < CPU_SETSIZE && CPU_ISSET(core, &ours)) place.cores.push_back(core);
    }
  }
  // Memory of a node none of whose cores are ours would only be farther away.
  if (!place.cores.empty() && !gpu.memory_nodes.empty()) place.memory_node = gpu.memory_nodes[0];
  return place;
}

JobCards::JobCards(const config::Config& config, const std::string& config_path,
                   const CardTerms& terms)
    : workers_per_card_(config.worker().workers_per_gpu()) {
  CardRequest request = RequestOf(config, config_path, terms.typed);
  origin_ = request.origin;
  named_ = request.devices.kind == DeviceWish::Kind::kNamed;
  const bool not_said = request.devices.kind == DeviceWish::Kind::kNotSaid;
  if (!not_said && !request.devices.WantsCards()) return;
  if (not_said && config.worker().has_backend() && !terms.no_backend.empty()) return;
  if (not_said && config.worker().convolution() == config::Worker::DIRECT) return;  // of the CPU
  probe_ = OpenNvml();
  const GpuSnapshot seen = probe_->Look();
  asked_ = !not_said || !seen.gpus.empty();
  if (!asked_) return;
  remark_ = EnvironmentRemark();
  const VisibleCards visible = VisibleHere(seen);
  if (not_said) {
    if (!terms.no_backend.empty()) {
      plan_.reason =
          fmt::format("{} here, but {}", Plural(static_cast<int64_t>(seen.gpus.size()), "GPU"),
                      terms.no_backend);
    } else {
      request.by_default = true;
      if (!terms.waits) {
        request.idle = IdleCards(seen, LockFolder::OfHost(), visible.uuids,
                                 request.memory_fraction * request.workers_per_card);
        // Without GPUs of their own these workers would compute on busy ones: taking them fails,
        // and says who has them.
        if (request.idle->empty() && config.worker().backend() == config::Worker::CUDA) {
          request.idle.reset();
        }
      }
    }
  }
  if (plan_.reason.empty()) plan_ = PlanCards(request, seen, visible);
  const config::Worker& worker = config.worker();
  const bool may_use_cpu = worker.soft_placement() && (!named_ || worker.has_soft_placement());
  if (!wanted() && !may_use_cpu) {
    throw Error(ExitCode::kFailure, "{}; worker.soft_placement=true would train on the CPU",
                plan_.reason);
  }
}

void JobCards::Take(const TakeOptions& options) {
  MUSTER_CHECK(wanted());
  taken_ =
      std::make_unique<TakenCards>(TakeCards(*probe_, LockFolder::OfHost(), *plan_.wish, options));
  CheckComputeModes();
}

std::vector<std::string> JobCards::Lines() const {
  if (!asked_) return {};
  std::vector<std::string> lines;
  if (!remark_.empty()) lines.push_back(remark_);
  if (taken_ == nullptr) {
    lines.push_back(plan_.reason + (wanted() ? "" : ": the workers compute on the CPU"));
    if (!plan_.hint.empty()) lines.push_back(plan_.hint);
    return lines;
  }
  for (const Gpu& gpu : taken_->cards) lines.push_back(CardText(gpu));
  lines.push_back(fmt::format("locked for this job; {}{}", plan_.reason,
                              taken_->reason.empty() ? "" : ": " + taken_->reason));
  if (!plan_.hint.empty()) lines.push_back(plan_.hint);
  if (!unused_.empty()) {
    lines.push_back(unused_ + ": the workers see these cards and compute on the CPU");
  }
  return lines;
}

// With one process at a time on it the second worker could not start, unless MPS serves them all.
void JobCards::CheckComputeModes() const {
  if (workers_per_card_ == 1) return;
  const char* const pipes = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  std::error_code ignored;
  const std::string folder = pipes != nullptr ? pipes : "/tmp/nvidia-mps";
  if (std::filesystem::exists(folder + "/control", ignored)) return;
  for (const Gpu& gpu : taken_->cards) {
    if (!gpu.exclusive) continue;
    throw Error(ExitCode::kFailure,
                "GPU {} is in compute mode EXCLUSIVE_PROCESS: expected one worker on it, got "
                "worker.workers_per_gpu={}. Set it to 1, start MPS (nvidia-cuda-mps-control -d), "
                "or have the mode changed (nvidia-smi -i {} -c DEFAULT)",
                gpu.index, workers_per_card_, gpu.index);
  }
}

// False: there is none, or nobody may say so now. The launcher watches its job meanwhile no more
// than it must: other jobs choose in a fraction of a second, or not at all.
bool JobCards::TakeInsteadOf(size_t card) {
  CardWish wish{
      .pool = plan_.wish->pool, .free_share = plan_.wish->free_share, .what = plan_.wish->what};
  for (const Gpu& ours : taken_->cards) std::erase(wish.pool, ours.uuid);
  if (wish.pool.empty()) return false;
  try {
    TakenCards more = TakeCards(*probe_, LockFolder::OfHost(), wish,
                                {.others_choose_s = 1, .say = [](const std::string&) {}});
    taken_->cards[card] = std::move(more.cards[0]);
    taken_->locks[card] = std::move(more.locks[0]);
    instead_.erase(card);
    instead_.emplace(card, std::move(more.ticket));
    return true;
  } catch (const Error&) {
    return false;
  }
}

WorkerPlace JobCards::PlaceAgain(uint32_t rank) {
  const size_t card = rank / workers_per_card_;
  MUSTER_CHECK(taken_ != nullptr && card < taken_->cards.size());
  const GpuSnapshot seen = probe_->Look();
  const Gpu* const now = seen.Find(taken_->cards[card].uuid);
  if (now == nullptr || !now->trouble.empty()) (void)TakeInsteadOf(card);
  return Places()[rank];
}

std::vector<WorkerPlace> JobCards::Places() const {
  std::vector<WorkerPlace> places;
  if (taken_ == nullptr) return places;
  for (size_t card = 0; card < taken_->cards.size(); ++card) {
    WorkerPlace place = PlaceOf(taken_->cards[card]);
    const auto instead = instead_.find(card);
    const Ticket& ticket = instead == instead_.end() ? taken_->ticket : instead->second;
    place.lock_fds = {taken_->locks[card].fd(), ticket.fd()};
    for (uint32_t i = 0; i < workers_per_card_; ++i) places.push_back(place);
  }
  return places;
}

}  // namespace muster
