// Describes which GPUs are in use, by whom and since when.
#pragma once

#include <string>
#include <vector>

#include "cli/gpu/gpu.h"
#include "cli/gpu/lock_folder.h"
#include "cli/gpu/ticket.h"

namespace muster {

// Whether it computes although no process is visible on it.
bool HasUnseenWork(const Gpu& gpu);

// Why this GPU should not be taken: a process computes on it, an invisible process computes or uses
// its memory, it is too hot, or it is unusable. "" if it can be taken. `free_share` is the share of
// its memory that must be free.
std::string WhyBusy(const Gpu& gpu, double free_share);

// "anna's launch configs/cifar10.txtpb (pid 4242, 4 GPUs)"
std::string JobText(const TicketText& ticket);

// The job that holds this GPU, or null.
const TicketText* HolderOf(const std::vector<TicketText>& tickets, const std::string& uuid);

// The GPUs among these that a job could take now.
std::vector<std::string> IdleGpus(const GpuSnapshot& seen, const LockFolder& folder,
                                  const std::vector<std::string>& uuids, double free_share);

// A line for each of these GPUs: "GPU 2: idle", "GPU 3: anna's … since 10:31". For a GPU that no
// job holds, explains why it is not idle or who has locked it.
std::vector<std::string> UsageLines(const GpuSnapshot& seen, const LockFolder& folder,
                                    const std::vector<std::string>& uuids, double free_share);

}  // namespace muster
