// Which GPUs are in use, and who uses them since when, in words.
#pragma once

#include <string>
#include <vector>

#include "cli/gpu/gpu.h"
#include "cli/gpu/lock_folder.h"
#include "cli/gpu/ticket.h"

namespace muster {

// Why this GPU should not be taken: somebody's process computes on it, its memory is used by
// somebody who cannot be seen, it is too hot, it cannot be used. "" if nothing speaks against it.
// `free_share`: of its memory, what must be free.
std::string WhyBusy(const Gpu& gpu, double free_share);

// "anna's launch configs/cifar10.txtpb (pid 4242, 4 GPUs)"
std::string JobText(const TicketText& ticket);

// The job that holds this GPU, or null.
const TicketText* HolderOf(const std::vector<TicketText>& tickets, const std::string& uuid);

// The GPUs among these that a job could take now.
std::vector<std::string> IdleGpus(const GpuSnapshot& seen, const LockFolder& folder,
                                  const std::vector<std::string>& uuids, double free_share);

// A line for each of these GPUs: "GPU 2: idle", "GPU 3: anna's … since 10:31", and why a GPU that
// no job holds is not idle, or who else has locked it.
std::vector<std::string> UsageLines(const GpuSnapshot& seen, const LockFolder& folder,
                                    const std::vector<std::string>& uuids, double free_share);

}  // namespace muster
